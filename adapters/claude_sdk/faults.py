"""What the Claude Agent SDK raises, as errors of the turn: mapped here, once."""

from __future__ import annotations

from claude_agent_sdk import (
    ClaudeSDKError,
    CLIConnectionError,
    CLIJSONDecodeError,
    CLINotFoundError,
    ProcessError,
)

from adapters import errors
from adapters.errors import TurnError

# The most specific first. The agent's process is not the SDK's, but its exceptions say what they say.
_FAULTS: tuple[tuple[type[Exception], type[TurnError]], ...] = (
    (CLINotFoundError, errors.AgentNotFound),
    (CLIConnectionError, errors.HostUnreachable),  # retried
    (ProcessError, errors.AgentFailed),
    (CLIJSONDecodeError, errors.AgentFailed),
    (ClaudeSDKError, errors.AgentFailed),
)


def turn_error(error: Exception, *, old: bool = False) -> TurnError:
    """The error of the turn. `old`: the agent has said that a hook which fails would not stop a tool."""
    if isinstance(error, TurnError):
        return error
    if old:
        return errors.AgentFailed(
            "this Claude Code is too old for the agent claude-sdk: a hook that fails would not stop a tool; "
            "update it on the host"
        )
    for foreign, ours in _FAULTS:
        if isinstance(error, foreign):
            return ours(str(error)[:500])
    return errors.AgentFailed(f"the Claude Agent SDK failed: {type(error).__name__}: {str(error)[:500]}")
