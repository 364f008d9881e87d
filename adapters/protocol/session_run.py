"""What follows on a turn of a session: another turn, or the end. A function of what was asked and has happened."""

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

# The agent, or its session, is the fault: a fresh one may do better.
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

# What brought a workspace that is there by now.
_IN_THE_SAME: Mapping[str, object] = {"mounts": (), "worktree": None, "keep_workspace": False}
N = TypeVar("N", int, float)


class Progress(BaseModel):
    """What has happened so far. The last turn's end is not in it yet."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    turns: int = 0  # that have ended
    in_session: int = 0  # of these, in the agent session that is running
    sessions: int = 1  # agent sessions, the one that is running included
    spent: Spent = Spent()
    workspace: str | None = None  # that the first turn has brought, and that the next ones work in


@dataclass(frozen=True, slots=True)
class NextTurn:
    """It goes on."""

    request: TurnRequest
    progress: Progress


def turn_id(run_id: str, number: int) -> str:
    """What a turn of it is called, from 1 on."""
    return f"{run_id}.{number}"


def first_turn(request: SessionRequest) -> TurnRequest:
    """How it begins."""
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
    """What follows on a turn that has ended, with the outcome of the test commands if these were run.

    `cancelled`: somebody wants all of it ended.
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
    workspace = so_far.workspace if place else None  # what another host had is gone: it is brought once more
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
    """How it ends, and why; None: it goes on."""
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
    """Why the task is done; None: it is not."""
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
    """Whether the next turn goes on in the session of the last one."""
    failed = turn.error is not None and turn.error.kind in _FRESH
    return not failed and turn.session_id is not None and so_far.in_session < request.max_turns


def _turn(request: SessionRequest, so_far: Progress, changes: Mapping[str, object]) -> TurnRequest:
    """The next turn, which may use what is left. Nothing here can be refused: its parts were validated."""
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
    """Where a fresh session begins: where the workspace is as the last one left it, unless that host was lost."""
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
    """What a session is told that is not done yet."""
    failures = _failures(checks)
    if failures:
        return f"The task is not done yet: test commands fail. Mend that.\n\n{failures}"
    if turn.error is not None:
        return "You ended without the structured output that was asked for. Finish the task and give it."
    return f"The task is not done yet: your output says {request.done_field} is not true. Go on with it."


def _fresh_prompt(request: SessionRequest, turn: TurnResult, checks: Sequence[Check]) -> str:
    """What a fresh session is told: the task, and where the one before it has left off."""
    how = f"; it ended ({turn.error.kind})" if turn.error else ", and was not done"
    why = f"Another session has worked on this before you{how}."
    parts = [request.turn.prompt, f"## So Far\n{why} Look at what is there already, and continue from that."]
    prompt = "\n\n".join(filter(None, [*parts, _failures(checks)]))
    return prompt if len(prompt.encode()) <= MAX_PROMPT_BYTES else request.turn.prompt


def _failures(checks: Sequence[Check]) -> str:
    return "\n\n".join(_failure(check) for check in checks if not check.passed)


def _failure(check: Check) -> str:
    how = "did not end in time" if check.exit is None else f"exit code {check.exit}"
    fence = "```"
    while fence in check.tail:
        fence += "`"
    printed = f"\n{fence}\n{check.tail.rstrip()}\n{fence}" if check.tail.strip() else "\nIt printed nothing."
    return f"## `{check.command}`: {how}{printed}"
