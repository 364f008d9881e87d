"""Tested versions of Claude Code."""

from adapters.versions import Versions

# Versions without a failing cell in the table of docs/adapters.md (`make test-agents`). 1.0.128 and 2.0.0 pass,
# too, but lack structured output.
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
        "requests outside the conversation",
    ),
)
