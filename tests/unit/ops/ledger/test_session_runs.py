"""Sessions of turns in the books: one turn at a time, and what follows on it is entered with its end."""

from __future__ import annotations

from typing import Any

from adapters.errors import InvalidRequest
from adapters.protocol.result import TurnResult
from adapters.protocol.session_request import SessionRequest
from adapters.protocol.session_result import Check, SessionResult
from adapters.usage import UsageSource
from ops.ledger import Claim, Ledger, State
from tests.support.claiming import claim_turn
from tests.support.ledger.accounts import TTL, a_failure, a_result, an_end, begun
from tests.support.ledgers import tasks_of

FAILED = Check(command="make test", exit=1, duration_ms=5, tail="broken")
PASSED = Check(command="make test", exit=0, duration_ms=5)


def asked(**fields: Any) -> SessionRequest:
    turn = {"prompt": "mend it", "workspace": "/srv/shop", "labels": {"team": "web"}}
    return SessionRequest.parse({"run_id": "r", "turn": turn, "test_commands": ["make test"], **fields})


def worked(ledger: Ledger, turn_id: str, check: Check, now: float = 10.0) -> TurnResult:
    claim = claim_turn(ledger, turn_id, f"w-{turn_id}", now, TTL)
    assert isinstance(claim, Claim)
    assert claim.session_run == "r"
    begun(ledger, claim, f"spool-{turn_id}", now)
    result = a_result(
        turn_id, session_id="session-1", host="local", usage_source=UsageSource.RESULT, cost_usd=0.25
    )
    ledger.queue.settle(claim, result, now, an_end(), [check])
    assert ledger.queue.settle(claim, result, now, an_end(), [check]) == result  # repeated, it changes nothing
    return result


def result_of(ledger: Ledger) -> SessionResult | None:
    session = ledger.session_runs.find("r")
    assert session is not None
    return session.result


def test_end_of_a_turn_and_the_next_turn_are_one_transaction(ledger: Ledger) -> None:
    assert ledger.session_runs.submit(asked(), 1.0)
    assert not ledger.session_runs.submit(asked(), 2.0)
    worked(ledger, "r.1", FAILED)
    assert ledger.reports.turn("r.2").state is State.QUEUED
    assert ledger.reports.turn("r.2").labels == {"team": "web"}
    request = ledger.reports.request("r.2")
    assert request is not None
    assert request.session_id == "session-1"
    assert result_of(ledger) is None
    worked(ledger, "r.2", PASSED)
    result = result_of(ledger)
    assert result is not None
    assert (result.status, result.turns, result.usage.input_tokens) == ("done", ("r.1", "r.2"), 200)
    assert result.cost_usd == 0.5
    assert len(ledger.reports.history()) == 2


def test_tasks_that_wait_are_those_of_the_session(ledger: Ledger) -> None:
    assert ledger.session_runs.admit(asked(), "task", 1.0).result is None
    assert ledger.session_runs.admit(asked(), "task", 1.0).again
    assert not ledger.session_runs.admit(asked(), "copy", 1.0).again
    assert ledger.waiters.turn_of("copy") == "r"
    assert tasks_of(ledger, "r.1") == frozenset()
    worked(ledger, "r.1", PASSED)
    assert ledger.waiters.unanswered(10.0) == ["r"]
    assert tasks_of(ledger, "r") == {"task", "copy"}
    late = ledger.session_runs.admit(asked(), "late", 11.0)
    assert (late.result, late.again) == (result_of(ledger), True)


def test_cancelled_session_has_no_further_turn(ledger: Ledger) -> None:
    ledger.session_runs.submit(asked(), 1.0)
    claim = claim_turn(ledger, "r.1", "w1", 1.0, TTL)
    assert isinstance(claim, Claim)
    assert ledger.session_runs.cancel("r", 2.0, running=False) == "r.1"
    assert ledger.queue.standing([claim]).cancelled == frozenset()
    assert ledger.session_runs.cancel("r", 2.0) == "r.1"
    assert ledger.queue.standing([claim]).cancelled == {"r.1"}
    begun(ledger, claim)
    ledger.queue.settle(claim, a_result("r.1"), 3.0, an_end(), [FAILED])  # it had ended before it could be
    result = result_of(ledger)
    assert result is not None
    assert result.status == "cancelled"
    assert ledger.session_runs.cancel("r", 4.0) is None
    assert ledger.session_runs.cancel("unknown", 4.0) is None


def test_session_ends_with_a_turn_that_is_cancelled_while_it_waits(ledger: Ledger) -> None:
    ledger.session_runs.submit(asked(), 1.0)
    ledger.queue.settle_unclaimed("r.1", a_failure("r.1"), 2.0)
    result = result_of(ledger)
    assert result is not None
    assert (result.status, result.usage.input_tokens) == ("cancelled", 0)


def test_refused_session_is_on_record_and_a_valid_one_stands(ledger: Ledger) -> None:
    refusal = SessionResult.refused("r", InvalidRequest("no"))
    assert ledger.session_runs.refuse(refusal, "task", 1.0).result == refusal
    assert ledger.session_runs.admit(asked(), "task", 2.0).result == refusal
    assert not ledger.session_runs.submit(asked(), 2.0)


def test_faulty_copy_waits_for_the_valid_session(ledger: Ledger) -> None:
    ledger.session_runs.submit(asked(), 1.0)
    assert ledger.session_runs.refuse(SessionResult.refused("r", InvalidRequest("no")), "task", 1.0).result is None


def test_prompt_goes_with_the_details_and_the_session_with_its_turns(ledger: Ledger) -> None:
    ledger.session_runs.submit(asked(), 1.0)
    worked(ledger, "r.1", PASSED)
    ledger.session_runs.submit(asked(run_id="open"), 1.0)
    ledger.retention.forget(20.0, 0.0)
    session = ledger.session_runs.find("r")
    assert session is not None
    assert session.request is None
    assert session.result is not None
    assert ledger.retention.forget(20.0, 20.0).session_runs == 1
    assert ledger.session_runs.find("r") is None
    still = ledger.session_runs.find("open")
    assert still is not None
    assert still.request is not None
