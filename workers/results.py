"""Construction of turn results."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from adapters.errors import TurnCancelled, TurnError, TurnExpired
from adapters.protocol.plan import Plan
from adapters.protocol.result import ErrorInfo, Status, TurnResult, totals
from adapters.turn_state import TurnState
from adapters.usage import Usage, combine
from remote.spool import Exit
from workers.events.model import AttemptStarted

if TYPE_CHECKING:  # `runturn replay` builds results without the ledger's library
    from ops.ledger import Attempt


def status_of(error: TurnError | None) -> Status:
    """Return the status for an error, or for none."""
    if error is None:
        return Status.COMPLETED
    return Status.CANCELLED if isinstance(error, TurnCancelled | TurnExpired) else Status.FAILED


def refused(turn_id: str, error: TurnError, attempts: int = 0, usages: Iterable[Usage] = ()) -> TurnResult:
    """Return the result of a turn whose next attempt could not start; `usages` are those of earlier attempts."""
    usage = combine(usages)
    return TurnResult(
        turn_id=turn_id,
        status=status_of(error),
        error=ErrorInfo.of(error),
        usage=totals(usage),
        usage_source=usage.source,
        usage_complete=usage.complete,
        cost_usd=usage.cost_usd,
        attempts=attempts,
    )


def attempt_started(attempt: Attempt, agent: str) -> AttemptStarted:
    """Return an attempt's first event as the ledger records it, so that every repetition is the same."""
    return AttemptStarted(attempt.attempt, agent, attempt.host, attempt.agent_version)


def finished(
    turn_id: str,
    state: TurnState,
    error: TurnError | None,
    *,
    usages: Iterable[Usage],
    host: str | None,
    agent_version: str | None,
    attempts: int,
    end: Exit,
    plan: Plan | None = None,
) -> TurnResult:
    """Return the result of a turn whose last attempt has ended; `usages` are those of all attempts."""
    usage = combine(usages)
    report = state.report
    return TurnResult(
        turn_id=turn_id,
        session_id=state.session_id,
        status=status_of(error),
        error=ErrorInfo.of(error) if error else None,
        text=(report.text if report else "") or state.text,
        structured_output=report.structured_output if report and state.expects_output else None,
        plan=plan,
        usage=totals(usage),
        usage_source=usage.source,
        usage_complete=usage.complete,
        cost_usd=usage.cost_usd,
        not_understood=report.unread if report else (),
        num_turns=report.num_turns if report else None,
        duration_ms=report.duration_ms if report else None,
        duration_api_ms=report.duration_api_ms if report else None,
        host=host,
        agent_version=agent_version,
        attempts=attempts,
        exit_code=end.code,
        cpu_ms=end.cpu_ms,
        peak_memory_bytes=end.peak_memory_bytes,
        denied_tools=report.denied_tools if report else (),
    )
