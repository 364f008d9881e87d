"""The next step of a session of turns: another turn, or the end. A pure function of its request and progress."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from pydantic import BaseModel, ConfigDict

from adapters import errors
from adapters.protocol.request import MAX_PROMPT_BYTES, TurnRequest
from adapters.protocol.result import Status, TurnResult
from adapters.protocol.session_request import SessionRequest
from adapters.protocol.session_result import (
    MAX_SESSIONS,
    MAX_TURNS,
    OUTPUT_DONE,
    TESTS_PASSED,
    Check,
    SessionResult,
    SessionStatus,
    Spent,
)

# The agent or its session is at fault: a fresh one may succeed.
_FRESH = frozenset(
    error.kind
    for error in (
        errors.SessionNotFound,
        errors.HostLost,
        errors.TurnTimeout,
        errors.TurnStalled,
        errors.ReadTimeout,
        errors.AgentFailed,
        errors.PortExit,
    )
)
_LIMITS = (errors.BudgetExceeded.kind, errors.DeadlineExceeded.kind)

# Changes to a request whose workspace has been made.
_IN_THE_SAME: Mapping[str, object] = {"mounts": (), "worktree": None, "keep_workspace": False}
N = TypeVar("N", int, float)


class Progress(BaseModel):
    """Progress of a session so far, without the turn that just ended."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    turns: int = 0  # finished
    in_session: int = 0  # of these, in the current agent session
    sessions: int = 1  # agent sessions, including the current one
    spent: Spent = Spent()
    workspace: str | None = None  # brought by the first turn, used by the next ones


@dataclass(frozen=True, slots=True)
class NextTurn:
    """The next turn of a session that continues."""

    request: TurnRequest
    progress: Progress


def turn_id(run_id: str, number: int) -> str:
    """Return the id of a session's turn; numbers start at 1."""
    return f"{run_id}.{number}"


def first_turn(request: SessionRequest) -> TurnRequest:
    """Return the request of the first turn."""
    return _turn(request, Progress(), {"prompt": request.turn.prompt})


def after_turn(
    request: SessionRequest,
    progress: Progress,
    turn: TurnResult,
    checks: Sequence[Check],
    now: float,
    *,
    cancelled: bool,
) -> NextTurn | SessionResult:
    """Return the turn that follows a finished one, or the session's result.

    `checks`: outcome of the test commands, if they ran. `cancelled`: cancellation of the session was requested.
    """
    so_far = progress.model_copy(
        update={
            "turns": progress.turns + 1,
            "in_session": progress.in_session + 1,
            "spent": progress.spent.and_of(turn),
            "workspace": turn.workspace or progress.workspace,
        }
    )
    end = _end(request, so_far, turn, checks, now, cancelled=cancelled)
    if end is not None:
        return _result(request, so_far, turn, checks, *end)
    if _same_session(request, so_far, turn):
        goes_on = {"prompt": _feedback(request, turn, checks), "session_id": turn.session_id}
        return NextTurn(_turn(request, so_far, goes_on), so_far)
    place = _place(request, turn)
    workspace = so_far.workspace if place else None  # another host has no copy: make it again
    anew = so_far.model_copy(update={"in_session": 0, "sessions": so_far.sessions + 1, "workspace": workspace})
    fresh = {"prompt": _fresh_prompt(request, turn, checks), "session_id": None, **place}
    return NextTurn(_turn(request, anew, fresh), anew)


def _end(
    request: SessionRequest,
    so_far: Progress,
    turn: TurnResult,
    checks: Sequence[Check],
    now: float,
    *,
    cancelled: bool,
) -> tuple[SessionStatus, str] | None:
    """Return how the session ends, and why; None if it continues."""
    done = _done(request, turn, checks)
    if done is not None:
        return SessionStatus.DONE, done
    kind = turn.error.kind if turn.error else None
    if cancelled or turn.status is Status.CANCELLED:
        expired = kind == errors.TurnExpired.kind
        return SessionStatus.CANCELLED, (errors.TurnExpired if expired else errors.TurnCancelled).kind
    limit = kind if kind in _LIMITS else _limit_reached(request, so_far, now)
    if limit is not None:
        return SessionStatus.GAVE_UP, limit
    if kind is not None and kind not in _FRESH and kind != errors.StructuredOutputMissing.kind:
        return SessionStatus.FAILED, kind
    anew = so_far.sessions < request.max_sessions or not request.max_sessions
    return None if anew or _same_session(request, so_far, turn) else _out_of_sessions(request, so_far, kind)


def _done(request: SessionRequest, turn: TurnResult, checks: Sequence[Check]) -> str | None:
    """Return why the task is done, or None if it is not."""
    if turn.error is not None:
        return None
    if checks and all(check.passed for check in checks):
        return TESTS_PASSED
    output = turn.structured_output
    says_so = isinstance(output, Mapping) and output.get(request.done_field or "") is True
    return OUTPUT_DONE if says_so and request.done_field is not None else None


def _out_of_sessions(request: SessionRequest, so_far: Progress, kind: str | None) -> tuple[SessionStatus, str]:
    if request.max_sessions > 1:
        return SessionStatus.GAVE_UP, MAX_SESSIONS
    if kind in _FRESH:
        return SessionStatus.FAILED, str(kind)
    return SessionStatus.GAVE_UP, MAX_TURNS if so_far.in_session >= request.max_turns else MAX_SESSIONS


def _limit_reached(request: SessionRequest, so_far: Progress, now: float) -> str | None:
    if request.deadline_at is not None and now >= request.deadline_at:
        return errors.DeadlineExceeded.kind
    spent = so_far.spent
    over_tokens = request.max_total_tokens is not None and spent.seen_tokens >= request.max_total_tokens
    over_cost = request.max_cost_usd is not None and spent.seen_cost_usd >= request.max_cost_usd
    return errors.BudgetExceeded.kind if over_tokens or over_cost else None


def _same_session(request: SessionRequest, so_far: Progress, turn: TurnResult) -> bool:
    """Return whether the next turn continues the last one's session."""
    failed = turn.error is not None and turn.error.kind in _FRESH
    return not failed and turn.session_id is not None and so_far.in_session < request.max_turns


def _turn(request: SessionRequest, so_far: Progress, changes: Mapping[str, object]) -> TurnRequest:
    """Return the next turn, limited to what is left. Needs no validation: its parts have been validated."""
    asked, spent = request.turn, so_far.spent
    left_tokens = None if request.max_total_tokens is None else request.max_total_tokens - spent.seen_tokens
    left_cost = None if request.max_cost_usd is None else request.max_cost_usd - spent.seen_cost_usd
    ends = [each for each in (asked.deadline, request.deadline) if each is not None]
    return asked.model_copy(
        update={
            "turn_id": turn_id(request.run_id, so_far.turns + 1),
            "max_total_tokens": _least(asked.max_total_tokens, left_tokens),
            "max_cost_usd": _least(asked.max_cost_usd, left_cost),
            "deadline": min(ends, key=datetime.timestamp, default=None),
            **({**_IN_THE_SAME, "workspace": so_far.workspace} if so_far.workspace else {}),
            **changes,
        }
    )


def _least(one: N | None, other: N | None) -> N | None:
    return min((each for each in (one, other) if each is not None), default=None)


def _place(request: SessionRequest, turn: TurnResult) -> dict[str, str]:
    """Return the host for a fresh session: the one with the last session's workspace, unless it was lost."""
    lost = turn.error is not None and turn.error.kind == errors.HostLost.kind
    if turn.host is None or (lost and request.turn.on_host_lost == "any_host"):
        return {}
    return {"host": turn.host}


def _result(
    request: SessionRequest,
    so_far: Progress,
    turn: TurnResult,
    checks: Sequence[Check],
    status: SessionStatus,
    reason: str,
) -> SessionResult:
    spent = so_far.spent
    return SessionResult(
        run_id=request.run_id,
        status=status,
        reason=reason,
        error=turn.error,
        turns=tuple(turn_id(request.run_id, number) for number in range(1, so_far.turns + 1)),
        sessions=so_far.sessions,
        session_id=turn.session_id,
        host=turn.host,
        workspace=so_far.workspace,
        text=turn.text,
        structured_output=turn.structured_output,
        checks=tuple(checks),
        usage=spent.usage,
        usage_source=spent.usage_source,
        usage_complete=spent.usage_complete,
        cost_usd=spent.cost_usd,
    )


def _feedback(request: SessionRequest, turn: TurnResult, checks: Sequence[Check]) -> str:
    """Return the prompt for a session that is not done yet."""
    failures = _failures(checks)
    if failures:
        return f"The task is not done yet: test commands fail. Fix that.\n\n{failures}"
    if turn.error is not None:
        return "You finished without the structured output that was requested. Finish the task and return it."
    return f"The task is not done yet: your output says {request.done_field} is not true. Continue."


def _fresh_prompt(request: SessionRequest, turn: TurnResult, checks: Sequence[Check]) -> str:
    """Return the prompt for a fresh session: the task, and where the previous session left off."""
    how = f" and failed ({turn.error.kind})" if turn.error else " but did not finish"
    why = f"A previous session worked on this{how}."
    parts = [request.turn.prompt, f"## So Far\n{why} Check what is already there, and continue from that."]
    prompt = "\n\n".join(filter(None, [*parts, _failures(checks)]))
    return prompt if len(prompt.encode()) <= MAX_PROMPT_BYTES else request.turn.prompt


def _failures(checks: Sequence[Check]) -> str:
    return "\n\n".join(_failure(check) for check in checks if not check.passed)


def _failure(check: Check) -> str:
    how = "timed out" if check.exit is None else f"exit code {check.exit}"
    fence = "```"
    while fence in check.tail:
        fence += "`"
    printed = f"\n{fence}\n{check.tail.rstrip()}\n{fence}" if check.tail.strip() else "\nIt printed nothing."
    return f"## `{check.command}`: {how}{printed}"
