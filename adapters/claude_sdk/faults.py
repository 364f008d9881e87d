"""Maps exceptions of the Claude Agent SDK to errors of the turn, in this one place."""

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

# Most specific first. The SDK does not run the agent's process here, but may still raise errors about it.
_FAULTS: tuple[tuple[type[Exception], type[TurnError]], ...] = (
    (CLINotFoundError, errors.AgentNotFound),
    (CLIConnectionError, errors.HostUnreachable),  # retried
    (ProcessError, errors.AgentFailed),
    (CLIJSONDecodeError, errors.AgentFailed),
    (ClaudeSDKError, errors.AgentFailed),
)


def turn_error(error: Exception, *, old: bool = False) -> TurnError:
    """Return the error of the turn. `old`: in this version, a failing hook would not block a tool."""
    if isinstance(error, TurnError):
        return error
    if old:
        return errors.AgentFailed(
            "this Claude Code is too old for the agent claude-sdk: a failing hook would not block a tool; "
            "update it on the host"
        )
    for foreign, ours in _FAULTS:
        if isinstance(error, foreign):
            return ours(str(error)[:500])
    return errors.AgentFailed(f"the Claude Agent SDK failed: {type(error).__name__}: {str(error)[:500]}")
