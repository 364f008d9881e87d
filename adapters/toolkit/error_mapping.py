"""Maps failures of any agent to errors: an HTTP status, an exit code, a program that does not start."""

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
    529: errors.Overloaded,  # Anthropic only
}
_NOT_STARTED = (126, 127)  # exit status of a shell that cannot start a program


def kind_of_status(status: int) -> type[TurnError]:
    """Return the error class for an HTTP status of a model's API."""
    return _STATUSES.get(status, errors.ApiUnreachable if status >= 500 else errors.AgentFailed)


def exit_after_success(state: TurnState, end: Exit, because: str) -> TurnError | None:
    """Return the error of a turn whose agent reported success and then failed; None if it did not fail.

    Such an attempt is paid, and its answer is in the result, so it is not retried.
    """
    if end.code in (0, None):
        return None
    if end.signalled:
        # The signal came too late to change anything, unless the agent had continued.
        return exit_error(state, end, because) if state.awaits_answer or state.tools else None
    return errors.PortExit(
        f"the agent reported success, and then exited with status {end.code}{because}", retry=Retry.NEVER
    )


def exit_error(state: TurnState, end: Exit, because: str) -> TurnError:
    """Return the error of an agent that exited without a report; `because` is its own explanation, or ""."""
    if end.code is None:
        return errors.HostLost()
    if end.signalled:
        return errors.TurnCancelled(f"the agent was terminated by a signal (exit status {end.code})")
    if end.code in _NOT_STARTED and not state.started:
        return errors.AgentNotFound(f"the agent could not be started (exit status {end.code})" + because)
    # A failure before the first event is due to arguments or environment: a retry would fail, too.
    retry = Retry.BACKOFF if state.started else Retry.NEVER
    return errors.PortExit(f"the agent exited with status {end.code}" + because, retry=retry)


def without_result(state: TurnState, because: str) -> TurnError:
    """Return the error of a turn whose agent exited with 0 without reporting a result."""
    if not state.started and not state.text and not state.malformed:
        return errors.AgentFailed("the agent exited without a result" + because)
    return not_understood(state, "the agent exited with status 0 and without a result" + because)


def not_understood(state: TurnState, what: str) -> errors.AgentNotUnderstood:
    """Return the error of a turn that may have succeeded; `what` says what was not understood."""
    agent = f"agent (version {state.agent_version})" if state.agent_version else "agent"
    unread = ""
    if state.malformed:
        unread = f"; {state.malformed} of its lines were unreadable; the last begins: {state.unread[:200]}"
    return errors.AgentNotUnderstood(
        f"the output of the {agent} is not understood: {what}{unread}. The agent may have done its work, so the "
        "turn is not retried; check its text and its workspace"
    )


def health_by_version(end: Exit, stdout: str, command: str, product: str) -> Health:
    """Return the health read from the outcome of `command --version`; `product` is what to install if missing."""
    version = find_version(stdout)
    if end.code == 0 and version is not None:
        return Health(True, version)
    if end.code in _NOT_STARTED:
        return Health(False, problem=f"{command} not found or not executable; install {product}")
    return Health(False, problem=f"{command} --version failed: {end.stderr.strip()[:200]}")
