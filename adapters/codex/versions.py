"""Tested versions of the Codex CLI."""

from adapters.versions import Versions

VERSIONS = Versions(
    proved=("0.128.0", "0.140.0", "0.150.1", "0.169.0"),
    covers=(
        "success with tools",
        "resume",
        "structured output",
        "API refusal",
        "rate limit",
        "cut stream",
        "cancel",
        "kill of agent and worker",
        "requests outside the conversation",
    ),
)
