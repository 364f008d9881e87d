"""Tested and unsupported versions of the Gemini CLI."""

from adapters.versions import Unsupported, Versions

# Versions without a failing cell in the table of docs/adapters.md (`make test-agents`).
VERSIONS = Versions(
    proved=("0.41.0", "0.45.2", "0.52.0", "0.61.0"),
    covers=(
        "success with tools",
        "resume",
        "API refusal",
        "rate limit",
        "cut stream",
        "cancel",
        "kill of agent and worker",
        "requests outside the conversation",
    ),
    # According to its --help, 0.39.0, 0.40.1 and older lack it, 0.41.0 has it.
    unsupported=(Unsupported("it has no --session-id, so every turn fails", mended="0.41.0"),),
)
