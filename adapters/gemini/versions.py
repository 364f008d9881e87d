"""The versions of the Gemini CLI, and what is known of them."""

from adapters.versions import Versions

VERSIONS = Versions(
    proved=("0.61.0",),
    covers=(
        "success with tools",
        "resume",
        "API refusal",
        "rate limit",
        "cut stream",
        "cancel",
        "kill of agent and worker",
    ),
)
