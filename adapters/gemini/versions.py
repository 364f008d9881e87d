"""The versions of the Gemini CLI, and what is known of them."""

from adapters.versions import Unsupported, Versions

# Those without a failing cell in the table of docs/adapters.md (`make test-agents`).
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
        "requests beside the conversation",
    ),
    # By its --help: 0.39.0, 0.40.1 and older do not have it, 0.41.0 does.
    unsupported=(Unsupported("it has no --session-id, so that every turn fails", mended="0.41.0"),),
)
