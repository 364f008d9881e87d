"""The versions of Claude Code, and what is known of them."""

from adapters.versions import Versions

VERSIONS = Versions(
    proved=("2.0.76", "2.1.0", "2.1.32", "2.1.69", "2.1.105", "2.1.197", "2.1.330"),
    covers=(
        "success with tools",
        "resume",
        "structured output",
        "API refusal",
        "rate limit",
        "cut stream",
        "cancel",
        "kill of agent and worker",
    ),
)
