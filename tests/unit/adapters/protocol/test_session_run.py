"""What follows on a turn of a session: every way it goes on, and every way it ends."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from adapters import errors
from adapters.errors import InvalidRequest, TurnError
from adapters.protocol.request import MAX_PROMPT_BYTES, TurnRequest
from adapters.protocol.result import ErrorInfo, ModelBill, Status, TurnResult, UsageTotals
from adapters.protocol.session_request import SessionRequest
from adapters.protocol.session_result import Check, SessionResult
from adapters.protocol.session_run import NextTurn, Progress, after_turn, first_turn
from adapters.usage import UsageSource

NOW = 1_800_000_000.0
PASSED = Check(command="make test", exit=0, duration_ms=1)
FAILED = Check(command="make test", exit=2, duration_ms=1, tail="it is ``` broken\n")
NOTHING_YET = Progress()
LATE = Check(command="make e2e", exit=None, duration_ms=1)
SCHEMA = {"type": "object", "properties": {"done": {"type": "boolean"}}}


def asked(turn: dict[str, Any] | None = None, **fields: Any) -> SessionRequest:
    of_turn = {"prompt": "mend it", "workspace": "/srv", **(turn or {})}
    return SessionRequest.parse({"run_id": "r", "turn": of_turn, "test_commands": ["make test"], **fields})


def ended(
    error: TurnError | None = None, tokens: int = 100, cost: float | None = 0.5, **fields: Any
) -> TurnResult:
    bill = ModelBill(input_tokens=tokens, cost_usd=cost)
    return TurnResult(
        turn_id="r.1",
        session_id="s",
        status=Status.CANCELLED
        if isinstance(error, errors.TurnCancelled)
        else Status.FAILED
        if error
        else "completed",
        error=ErrorInfo.of(error) if error else None,
        usage=UsageTotals(input_tokens=tokens, by_model={"m": bill}),
        usage_source=UsageSource.RESULT,
        cost_usd=cost,
        host="build1",
        **fields,
    )


def follows(
    request: SessionRequest,
    turn: TurnResult,
    *checks: Check,
    so_far: Progress = NOTHING_YET,
    cancelled: bool = False,
) -> NextTurn | SessionResult:
    return after_turn(request, so_far, turn, checks, NOW, cancelled=cancelled)


def goes_on(step: NextTurn | SessionResult) -> TurnRequest:
    assert isinstance(step, NextTurn), step
    assert (
        TurnRequest.parse(step.request.model_dump(mode="json")) == step.request
    )  # what was never validated is valid
    return step.request


def reason(step: NextTurn | SessionResult) -> tuple[str, str]:
    assert isinstance(step, SessionResult), step
    assert SessionResult.model_validate_json(step.model_dump_json()) == step
    return str(step.status), step.reason


def test_first_turn_is_the_one_asked_for() -> None:
    turn = first_turn(asked({"labels": {"team": "web"}}))
    assert (turn.turn_id, turn.prompt, turn.labels, turn.session_id) == ("r.1", "mend it", {"team": "web"}, None)
    assert first_turn(asked({"session_id": "known"})).session_id == "known"


def test_failures_are_the_next_turns_prompt_in_the_same_session() -> None:
    turn = goes_on(follows(asked(), ended(), PASSED, FAILED, LATE))
    assert (turn.turn_id, turn.session_id) == ("r.2", "s")
    assert turn.prompt == (
        "The task is not done yet: test commands fail. Fix that.\n\n"
        "## `make test`: exit code 2\n````\nit is ``` broken\n````\n\n"
        "## `make e2e`: timed out\nIt printed nothing."
    )


def test_done_when_all_tests_pass() -> None:
    assert reason(follows(asked(), ended(), PASSED, PASSED)) == ("done", "tests_passed")
    assert reason(follows(asked(), ended(), PASSED, cancelled=True)) == ("done", "tests_passed")


def test_done_when_the_output_says_so() -> None:
    request = asked({"output_schema": SCHEMA}, test_commands=[], done_field="done")
    assert reason(follows(request, ended(structured_output={"done": True}))) == ("done", "output_done")
    for output in ({"done": False}, {"done": "true"}, {}, None):
        assert "done is not true" in goes_on(follows(request, ended(structured_output=output))).prompt
    missing = ended(errors.StructuredOutputMissing())
    assert "without the structured output" in goes_on(follows(request, missing)).prompt


def test_cancelled_for_whoever_wants_it() -> None:
    assert reason(follows(asked(), ended(), FAILED, cancelled=True)) == ("cancelled", "turn_cancelled")
    assert reason(follows(asked(), ended(errors.TurnCancelled()))) == ("cancelled", "turn_cancelled")


def test_turns_of_one_session_are_limited() -> None:
    request = asked(max_turns=2)
    first = follows(request, ended(), FAILED)
    assert isinstance(first, NextTurn)
    assert reason(follows(request, ended(), FAILED, so_far=first.progress)) == ("gave_up", "max_turns")


def test_fresh_session_follows_on_one_that_had_its_turns() -> None:
    request = asked(max_turns=1, max_sessions=2)
    first = follows(request, ended(), FAILED)
    turn = goes_on(first)
    assert (turn.session_id, turn.host) == (None, "build1")
    assert turn.prompt.startswith("mend it\n\n## So Far\nA previous session worked on this but did not finish.")
    assert turn.prompt.endswith("exit code 2\n````\nit is ``` broken\n````")
    assert isinstance(first, NextTurn)
    assert reason(follows(request, ended(), FAILED, so_far=first.progress)) == ("gave_up", "max_sessions")


@pytest.mark.parametrize(
    "error",
    [errors.SessionNotFound(), errors.HostLost(), errors.AgentFailed(), errors.PortExit(), errors.TurnStalled()],
)
def test_fresh_session_follows_on_one_that_failed(error: TurnError) -> None:
    assert reason(follows(asked(), ended(error))) == ("failed", error.kind)
    assert goes_on(follows(asked(max_sessions=2), ended(error))).session_id is None
    endless = asked(max_sessions=0, max_cost_usd=1.0)
    assert goes_on(follows(endless, ended(error), so_far=Progress(sessions=500))).session_id is None


def test_fresh_session_leaves_a_host_that_was_lost_where_it_may() -> None:
    request = asked({"on_host_lost": "any_host"}, max_sessions=2)
    assert goes_on(follows(request, ended(errors.HostLost()))).host is None


@pytest.mark.parametrize(
    "error",
    [errors.AuthenticationFailed(), errors.OutOfTokens(), errors.InvalidWorkspace(), errors.AgentNotFound()],
)
def test_failure_that_another_turn_would_not_mend_ends_it(error: TurnError) -> None:
    assert reason(follows(asked(max_sessions=9), ended(error))) == ("failed", error.kind)


def test_no_turn_may_use_more_than_is_left() -> None:
    request = asked({"max_total_tokens": 400}, max_total_tokens=300, max_cost_usd=0.8)
    first = first_turn(request)
    assert (first.max_total_tokens, first.max_cost_usd) == (300, 0.8)
    step = follows(request, ended(), FAILED)
    turn = goes_on(step)
    assert (turn.max_total_tokens, turn.max_cost_usd) == (200, pytest.approx(0.3))
    assert isinstance(step, NextTurn)
    assert reason(follows(request, ended(), FAILED, so_far=step.progress)) == ("gave_up", "budget_exceeded")
    assert reason(follows(request, ended(errors.BudgetExceeded()))) == ("gave_up", "budget_exceeded")


def test_deadline_holds_for_each_turn_and_for_all() -> None:
    early, late = (datetime.fromtimestamp(NOW + seconds, UTC) for seconds in (-1, 1))
    request = asked({"deadline": late.isoformat()}, deadline=early.isoformat())
    assert first_turn(request).deadline == early
    assert reason(follows(request, ended(), FAILED)) == ("gave_up", "deadline_exceeded")
    assert goes_on(follows(asked(deadline=late.isoformat()), ended(), FAILED)).deadline == late


def test_workspace_that_the_first_turn_brings_is_that_of_all_turns() -> None:
    brought = {"workspace": "", "worktree": {"repository": "/srv/shop"}, "keep_workspace": True}
    request = asked(brought, max_turns=2, max_sessions=3)
    assert first_turn(request).worktree is not None
    step = follows(request, ended(workspace="/spools/w1"), FAILED)
    second = goes_on(step)
    assert (second.workspace, second.worktree, second.keep_workspace) == ("/spools/w1", None, False)
    assert isinstance(step, NextTurn)
    fresh = follows(request, ended(), FAILED, so_far=step.progress)
    assert goes_on(fresh).workspace == "/spools/w1"
    end = follows(request, ended(), PASSED, so_far=step.progress)
    assert isinstance(end, SessionResult)
    assert end.workspace == "/spools/w1"


def test_workspace_is_brought_once_more_where_its_host_was_lost() -> None:
    brought = {"workspace": "", "worktree": {"repository": "/srv/shop"}, "keep_workspace": True}
    request = asked({**brought, "on_host_lost": "any_host"}, max_sessions=3)
    turn = goes_on(follows(request, ended(errors.HostLost()), so_far=Progress(workspace="/spools/w1")))
    assert (turn.workspace, turn.host) == ("", None)
    assert turn.worktree is not None


def test_usage_is_that_of_all_turns_and_an_unknown_price_is_none() -> None:
    step = follows(asked(), ended(), FAILED)
    assert isinstance(step, NextTurn)
    end = follows(asked(), ended(cost=None), PASSED, so_far=step.progress)
    assert isinstance(end, SessionResult)
    assert (end.usage.input_tokens, end.cost_usd, end.turns) == (200, None, ("r.1", "r.2"))


def test_prompt_that_would_be_too_long_is_the_one_asked_for() -> None:
    request = asked({"prompt": "x" * MAX_PROMPT_BYTES}, max_turns=1, max_sessions=2)
    assert goes_on(follows(request, ended(), FAILED)).prompt == request.turn.prompt


def test_commands_of_the_task_are_those_that_are_run() -> None:
    turn = {"workspace": "/srv", "task": {"description": "x", "test_commands": ["make test"]}}
    request = SessionRequest.parse({"turn": turn}, run_id="task-1")
    assert (request.run_id, request.test_commands) == ("task-1", ("make test",))
    assert SessionRequest.parse({"turn": turn, "test_commands": ["true"]}).test_commands == ("true",)
    again = SessionRequest.parse(request.document())
    assert again.document() == request.document()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"test_commands": []}, "needs test_commands"),
        ({"done_field": "done"}, "done_field needs turn.output_schema"),
        ({"max_sessions": 0}, "max_sessions 0 needs"),
        ({"max_turns": 0}, "max_turns"),
        ({"turn": {"prompt": "x", "worktree": {"repository": "/srv"}}}, "needs keep_workspace"),
        ({"test_commands": [" "]}, "test_commands.0: is not a command"),
        ({"turn": {"prompt": "x", "workspace": "/srv", "turn_id": "mine"}}, "turn: turn_id is derived from"),
        ({"turn": {"prompt": "x", "workspace": "srv"}}, "turn.workspace"),
        ({"run_id": "x" * 113}, "run_id"),
        ({"until": "done"}, "until: is not a known field"),
    ],
)
def test_requests_that_make_no_sense_are_refused_with_the_field_named(
    fields: dict[str, Any], message: str
) -> None:
    turn = {"prompt": "x", "workspace": "/srv"}
    with pytest.raises(InvalidRequest, match=message):
        SessionRequest.parse({"turn": turn, "test_commands": ["true"], **fields})
