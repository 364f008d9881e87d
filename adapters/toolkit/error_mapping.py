"""What failures mean, whichever agent has them: an HTTP status, an exit code, a program that does not start."""

from __future__ import annotations

from adapters import errors
from adapters.contract import Exit, Health
from adapters.errors import Retry, TurnError
from adapters.turn_state import TurnState
from adapters.versions import find_version

_STATUSES: dict[int, type[TurnError]] = {
    400: errors.InvalidRequest,
    401: errors.AuthenticationFailed,
    402: errors.OutOfTokens,
    403: errors.AuthenticationFailed,
    404: errors.InvalidRequest,
    413: errors.InvalidRequest,
    429: errors.RateLimited,
    503: errors.Overloaded,
    529: errors.Overloaded,  # Anthropic's own
}
_NOT_STARTED = (126, 127)  # what shells exit with then


def kind_of_status(status: int) -> type[TurnError]:
    """The error that an HTTP status of a model's API means."""
    return _STATUSES.get(status, errors.ApiUnreachable if status >= 500 else errors.AgentFailed)


def exit_after_success(state: TurnState, end: Exit, because: str) -> TurnError | None:
    """Why a turn failed after all whose agent has reported success; None: it did not.

    Such an attempt is paid for, and what it has answered stands in the result: it is not worth another one.
    """
    if end.code in (0, None):
        return None
    if end.signalled:
        # Whoever ended it came too late to change anything, unless it had gone on.
        return exit_error(state, end, because) if state.awaits_answer or state.tools else None
    return errors.PortExit(
        f"the agent reported success, and then exited with status {end.code}{because}", retry=Retry.NEVER
    )


def exit_error(state: TurnState, end: Exit, because: str) -> TurnError:
    """Why an agent failed of which only its end tells; `because` is what it has said of it, or blank."""
    if end.code is None:
        return errors.HostLost()
    if end.signalled:
        return errors.TurnCancelled(f"the agent was ended by a signal (exit status {end.code})")
    if end.code in _NOT_STARTED and not state.started:
        return errors.AgentNotFound(f"the agent could not be started (exit status {end.code})" + because)
    # Before its first event it complains of its arguments or its surroundings: no use in trying again.
    retry = Retry.BACKOFF if state.started else Retry.NEVER
    return errors.PortExit(f"the agent exited with status {end.code}" + because, retry=retry)


def without_result(state: TurnState, because: str) -> TurnError:
    """Why a turn failed whose agent exited with 0, as after a success, and reported none."""
    if not state.started and not state.text and not state.malformed:
        return errors.AgentFailed("the agent ended without a result" + because)
    return not_understood(state, "it ended with exit status 0 and without a result" + because)


def not_understood(state: TurnState, what: str) -> errors.AgentNotUnderstood:
    """The error of a turn that may be a success; `what` says what of its end was not understood."""
    agent = f"agent's version {state.agent_version}" if state.agent_version else "agent"
    unread = ""
    if state.malformed:
        unread = f"; {state.malformed} of its lines could not be read, the last begins: {state.unread[:200]}"
    return errors.AgentNotUnderstood(
        f"the {agent} is not understood: {what}{unread}. Its work may be done, so it was not tried again; "
        "see its text and its workspace"
    )


def health_by_version(end: Exit, stdout: str, command: str, product: str) -> Health:
    """Read what `command --version` came to; `product` is what to install where there is no such command."""
    version = find_version(stdout)
    if end.code == 0 and version is not None:
        return Health(True, version)
    if end.code in _NOT_STARTED:
        return Health(False, problem=f"{command} is not there or not executable; install {product}")
    return Health(False, problem=f"{command} --version failed: {end.stderr.strip()[:200]}")
