"""One turn, one result, and every token booked once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from adapters.protocol.result import Status
from adapters.usage import NO_USAGE, ModelUsage, Tokens, Usage, UsageSource
from ops.errors import AttemptOpen, UnknownTurn
from ops.ledger import (
    Asked,
    Busy,
    Claim,
    CostKey,
    FailureTotals,
    InUse,
    Ledger,
    OutcomeTotals,
    SessionRow,
    Settled,
    State,
)
from tests.support.claiming import claim_turn
from tests.support.ledger.accounts import (
    PLACE,
    TTL,
    a_failure,
    a_request,
    a_result,
    a_usage,
    an_end,
    audit,
    begun,
    claimed,
    completed,
    taken,
    tried_again,
)
from tests.support.ledgers import tasks_of


def test_settled_turn_has_result_bill_and_totals(ledger: Ledger, ledger_url: str) -> None:
    completed(ledger, "t1", a_usage(0.25))
    row = ledger.reports.turn("t1")
    assert (row.state, row.status, row.error_kind, row.settled_at) == (State.SETTLED, "completed", None, 6.0)
    assert (row.owner, row.owner_expires, row.due_at) == (None, None, None)
    assert (row.spent.tokens, row.spent.cost_usd, row.spent.unpriced_tokens) == (
        Tokens(100, 20, 3000, 400),
        0.25,
        0,
    )
    assert ledger.reports.result("t1") == a_result()
    assert audit(ledger_url) == {"opus": 3520}


def test_second_settlement_gets_the_first_result(ledger: Ledger, ledger_url: str) -> None:
    claim = claimed(ledger)
    begun(ledger, claim)
    assert ledger.queue.settle(claim, a_result(text="first"), 2.0, an_end()).text == "first"
    assert ledger.queue.settle(claim, a_result(text="second"), 3.0, an_end()).text == "first"
    assert audit(ledger_url) == {"opus": 3520}
    assert ledger.reports.totals().outcomes == (OutcomeTotals("claude-code", "completed", 1),)


def test_settling_without_booking_the_open_attempt_is_refused(ledger: Ledger) -> None:
    claim = claimed(ledger)
    begun(ledger, claim)
    with pytest.raises(AttemptOpen):
        ledger.queue.settle(claim, a_result(), 2.0)
    assert ledger.reports.turn("t1").state is State.RUNNING


def test_attempt_is_booked_once_whoever_ends_it_again(ledger: Ledger, ledger_url: str) -> None:
    claim = claimed(ledger)
    begun(ledger, claim)
    claim = tried_again(ledger, claim, an_end(used=a_usage(0.25)), 2.0)
    claim = tried_again(ledger, claim, an_end(used=a_usage(9.0)), 3.0)
    ledger.queue.settle(claim, a_result(), 4.0, an_end(used=a_usage(9.0)))
    assert ledger.accounting.usage_of("t1") == {1: a_usage(0.25)}
    assert audit(ledger_url) == {"opus": 3520}


def test_end_of_an_attempt_that_never_began_books_nothing(ledger: Ledger, ledger_url: str) -> None:
    ledger.queue.wait(claimed(ledger), 9.0, "overloaded", 2.0, an_end(7))
    assert ledger.accounting.usage_of("t1") == {}
    assert audit(ledger_url) == {}


def test_parking_books_the_attempt_in_the_same_transaction(ledger: Ledger, ledger_url: str) -> None:
    claim = claimed(ledger)
    begun(ledger, claim)
    ledger.queue.wait(claim, 60.0, "overloaded", 2.0, an_end(outcome="overloaded"))
    assert audit(ledger_url) == {"opus": 3520}
    successor = claim_turn(ledger, "t1", "w2", 60.0, TTL)
    assert isinstance(successor, Claim)
    assert successor.open is None
    assert successor.last is not None
    assert (successor.last.outcome, successor.last.exit_code) == ("overloaded", 0)


def test_parked_turn_may_leave_its_agent_running(ledger: Ledger) -> None:
    claim = claimed(ledger)
    attempt = begun(ledger, claim)
    ledger.queue.wait(claim, 60.0, "host_unreachable", 2.0)
    assert isinstance(ledger.queue.settle_unclaimed("t1", a_failure(), 3.0), Busy)
    successor = claim_turn(ledger, "t1", "w2", 60.0, TTL)
    assert isinstance(successor, Claim)
    assert successor.open == attempt


def test_bill_of_a_turn_is_that_of_all_its_attempts(ledger: Ledger, ledger_url: str) -> None:
    claim = claimed(ledger)
    two_models = Usage({**a_usage(0.5).by_model, "haiku": ModelUsage(Tokens(1, 2, 3, 4), 0.1)}, UsageSource.RESULT)
    ends = [a_usage(0.25, UsageSource.SESSION_FILES), two_models, NO_USAGE]
    for number, used in enumerate(ends, 1):
        begun(ledger, claim, f"s{number}")
        claim = tried_again(ledger, claim, an_end(number, used, "overloaded"), float(number))
    assert ledger.accounting.usage_of("t1") == dict(enumerate(ends, 1))
    assert audit(ledger_url) == {"opus": 7040, "haiku": 10}
    assert ledger.reports.turn("t1").spent.cost_usd == 0.85


def test_incomplete_usage_stays_marked(ledger: Ledger) -> None:
    claim = claimed(ledger)
    begun(ledger, claim)
    cut = Usage(a_usage().by_model, UsageSource.SESSION_FILES, complete=False)
    ledger.queue.wait(claim, 9.0, "overloaded", 2.0, an_end(used=cut))
    assert ledger.accounting.usage_of("t1") == {1: cut}


def test_estimates_are_in_no_total(ledger: Ledger, ledger_url: str) -> None:
    completed(ledger, "t1", a_usage(None, UsageSource.STREAM))
    completed(ledger, "t2", a_usage(0.25))
    assert audit(ledger_url) == {"opus": 3520}
    (row,) = ledger.reports.cost(CostKey.MODEL)
    assert (row.spent.tokens.total, row.spent.cost_usd, row.spent.unpriced_tokens) == (3520, 0.25, 0)
    assert row.spent.estimated == Tokens(100, 20, 3000, 400)
    assert {(total.observed, total.cost_usd) for total in ledger.reports.totals().models} == {
        (False, None),
        (True, 0.25),
    }


def test_unpriced_is_not_free(ledger: Ledger, ledger_url: str) -> None:
    completed(ledger, "t1", a_usage(None))
    (total,) = ledger.reports.totals().models
    assert (total.cost_usd, total.unpriced_tokens) == (None, 3520)
    assert ledger.reports.turn("t1").spent.cost_usd is None
    completed(ledger, "t2", a_usage(0.25))
    completed(ledger, "t3", a_usage(None))
    completed(ledger, "t4", a_usage(0.0))
    (total,) = ledger.reports.totals().models
    assert (total.cost_usd, total.unpriced_tokens) == (0.25, 7040)
    assert ledger.reports.turn("t4").spent.cost_usd == 0.0
    audit(ledger_url)


def test_money_adds_up_to_the_billionth(ledger: Ledger) -> None:
    for number in range(30):
        completed(ledger, f"t{number}", a_usage(0.1))
    (total,) = ledger.reports.totals().models
    assert total.cost_usd == 3.0  # the sum of thirty floats is 3.0000000000000013


def test_large_numbers_fit(ledger: Ledger) -> None:
    huge = Usage({"opus": ModelUsage(Tokens(2**40, 2**40, 2**40, 2**40), 1_000_000.0)}, UsageSource.RESULT)
    completed(ledger, "t1", huge)
    completed(ledger, "t2", huge)
    (row,) = ledger.reports.cost(CostKey.AGENT)
    assert (row.spent.tokens.total, row.spent.cost_usd) == (2**43, 2_000_000.0)


def test_queued_turn_is_cancelled_without_a_worker(ledger: Ledger) -> None:
    ledger.queue.submit_many([a_request()], 1.0)
    assert ledger.queue.cancel("t1", 2.0) is State.QUEUED
    assert ledger.queue.settle_unclaimed("t1", a_failure(), 2.0) == Settled(a_failure())
    assert taken(ledger, 3.0) == []
    assert ledger.reports.turn("t1").error_kind == "turn_cancelled"


def test_running_turn_is_settled_by_its_owner_only(ledger: Ledger) -> None:
    claim = claimed(ledger, now=1.0)
    assert ledger.queue.settle_unclaimed("t1", a_failure(), 2.0) == Busy("t1", "w1", 11.0)
    ledger.queue.release([claim], 2.0)
    assert ledger.queue.settle_unclaimed("t1", a_failure(), 2.0) == Busy("t1", None, 2.0)
    with pytest.raises(UnknownTurn):
        ledger.queue.settle_unclaimed("t2", a_failure("t2"), 2.0)


def test_cancelled_turn_that_is_parked_is_due_at_once(ledger: Ledger) -> None:
    ledger.queue.wait(claimed(ledger), 600.0, "rate_limited", 2.0)
    assert ledger.queue.cancel("t1", 3.0) is State.WAITING
    (claim,) = ledger.queue.take("w2", lambda place: place == "nowhere", 3.0, TTL, 10)
    assert claim.cancel_requested


def test_turn_cancelled_while_it_runs_is_not_parked_for_long(ledger: Ledger) -> None:
    claim = claimed(ledger)
    assert ledger.queue.cancel("t1", 2.0) is State.RUNNING
    ledger.queue.wait(claim, 600.0, "overloaded", 3.0)
    assert taken(ledger, 3.0, {"nowhere"}) == ["t1"]


def test_cancelling_a_settled_turn_changes_nothing(ledger: Ledger) -> None:
    ledger.queue.settle(claimed(ledger), a_result(), 2.0)
    assert ledger.queue.cancel("t1", 3.0) is State.SETTLED
    assert not ledger.reports.turn("t1").cancel_requested
    with pytest.raises(UnknownTurn):
        ledger.queue.cancel("t2", 3.0)


def test_refused_request_has_a_result_but_no_request(ledger: Ledger, ledger_url: str) -> None:
    refusal = a_failure(kind="invalid_request", status=Status.FAILED)
    assert ledger.queue.refuse("t1", "claude-code", refusal, "task", 1.0) == Asked(refusal, again=False)
    assert ledger.queue.refuse("t1", "claude-code", a_failure(), "task", 2.0) == Asked(refusal, again=True)
    assert (ledger.reports.request("t1"), ledger.reports.result("t1")) == (None, refusal)
    assert not ledger.queue.submit_many([a_request()], 3.0)
    assert taken(ledger, 4.0) == []
    assert [row.turn_id for row in ledger.reports.history(status="failed")] == ["t1"]
    assert tasks_of(ledger, "t1") == {"task"}
    audit(ledger_url)


def test_refused_request_does_not_touch_a_valid_one_of_that_name(ledger: Ledger) -> None:
    ledger.queue.submit_many([a_request()], 1.0)
    assert ledger.queue.refuse("t1", "claude-code", a_failure(), "task", 2.0) == Busy("t1", None, None)
    assert ledger.reports.turn("t1").state is State.QUEUED
    ledger.queue.settle(claimed(ledger), a_result(), 3.0)
    assert ledger.queue.refuse("t1", "claude-code", a_failure(), "task", 4.0) == Asked(a_result(), again=True)


def test_session_has_one_turn_at_a_time(ledger: Ledger) -> None:
    first, second = claimed(ledger, "t1"), claimed(ledger, "t2")
    row = ledger.sessions.lock(first, "session-1", now=2.0, **PLACE)
    assert (
        row
        == SessionRow("session-1", **PLACE, locked_by="t1", updated_at=2.0)
        == ledger.sessions.find("session-1")
    )
    assert ledger.sessions.lock(second, "session-1", now=3.0, **PLACE) == InUse("session-1", "t1")
    ledger.queue.settle(first, a_result("t1"), 4.0)
    assert isinstance(ledger.sessions.lock(second, "session-1", now=5.0, **PLACE), SessionRow)


def test_session_stays_with_a_turn_through_death_and_parking(ledger: Ledger) -> None:
    first, other = claimed(ledger, "t1"), claimed(ledger, "t2")
    ledger.sessions.lock(first, "session-1", now=2.0, **PLACE)
    successor = claim_turn(ledger, "t1", "w2", 50.0, TTL)
    assert isinstance(successor, Claim)
    assert isinstance(ledger.sessions.lock(successor, "session-1", now=51.0, **PLACE), SessionRow)
    ledger.queue.wait(successor, 90.0, "overloaded", 52.0)
    assert ledger.sessions.lock(other, "session-1", now=53.0, **PLACE) == InUse("session-1", "t1")


def test_cancelled_turn_frees_its_session(ledger: Ledger) -> None:
    claim = claimed(ledger)
    ledger.sessions.lock(claim, "session-1", now=2.0, **PLACE)
    ledger.queue.wait(claim, 90.0, "overloaded", 3.0)
    ledger.queue.settle_unclaimed("t1", a_failure(), 4.0)
    assert ledger.sessions.find("session-1") == SessionRow("session-1", **PLACE, locked_by=None, updated_at=4.0)


def test_session_that_the_agent_named_itself_can_be_resumed(ledger: Ledger) -> None:
    claim = claimed(ledger)
    ledger.sessions.lock(claim, "session-1", now=2.0, **PLACE)
    begun(ledger, claim)
    ledger.queue.settle(claim, a_result(session_id="other-name"), 4.0, an_end())
    assert ledger.sessions.find("other-name") == SessionRow("other-name", **PLACE, locked_by=None, updated_at=4.0)
    assert ledger.reports.turn("t1").session_id == "other-name"
    assert ledger.sessions.find("nobody") is None


@pytest.mark.parametrize(
    ("seen", "told", "noted"),
    [
        ("1.0.128", "2.1.330", "2.1.330"),
        ("1.0.128", None, "1.0.128"),
        (None, "2.1.330", "2.1.330"),
        (None, None, None),
    ],
)
def test_version_that_the_agent_tells_replaces_what_its_host_was_seen_to_have(
    ledger: Ledger, seen: str | None, told: str | None, noted: str | None
) -> None:
    claim = claimed(ledger)
    assert begun(ledger, claim, agent_version=seen).agent_version == seen
    again = tried_again(ledger, claim, replace(an_end(outcome="overloaded"), agent_version=told), 2.0)
    assert again.last is not None
    assert again.last.agent_version == noted


def test_what_attempts_that_failed_have_used_is_in_the_books_once(ledger: Ledger, ledger_url: str) -> None:
    claim = claimed(ledger)
    begun(ledger, claim, "s1", agent_version="2.1.0")
    claim = tried_again(ledger, claim, an_end(1, a_usage(0.25), "port_exit"), 2.0)
    begun(ledger, claim, "s2", agent_version="2.1.0")
    claim = tried_again(ledger, claim, an_end(2, a_usage(0.5), "port_exit"), 3.0)
    begun(ledger, claim, "s3")
    claim = tried_again(ledger, claim, an_end(3, a_usage(None), "turn_stalled"), 4.0)
    begun(ledger, claim, "s4", agent_version="2.1.0")
    claim = tried_again(ledger, claim, an_end(4, a_usage(None, UsageSource.STREAM), "port_exit"), 5.0)
    begun(ledger, claim, "s5", agent_version="2.1.0")
    ledger.queue.settle(claim, a_result(), 6.0, an_end(5))
    assert set(ledger.reports.totals().failures) == {
        FailureTotals("claude-code", "2.1.0", "port_exit", 7040, 0.75, 3.0),
        FailureTotals("claude-code", "", "turn_stalled", 3520, None, 4.0),
    }
    assert audit(ledger_url) == {"opus": 4 * 3520}
    assert ledger.accounting.amend("t1", 4, a_usage(1.0, UsageSource.SESSION_FILES))
    assert (
        FailureTotals("claude-code", "2.1.0", "port_exit", 10_560, 1.75, 5.0) in ledger.reports.totals().failures
    )
    audit(ledger_url, amended=True)


def test_bill_by_outcome_and_by_version_tells_what_was_spent_in_vain(ledger: Ledger) -> None:
    claim = claimed(ledger)
    begun(ledger, claim, "s1", agent_version="2.1.0")
    claim = tried_again(ledger, claim, an_end(1, a_usage(0.25), "port_exit"), 2.0)
    begun(ledger, claim, "s2")
    ledger.queue.settle(claim, a_result(), 3.0, an_end(2, a_usage(0.5)))
    by_outcome = {row.key: (row.turns, row.spent.cost_usd) for row in ledger.reports.cost(CostKey.OUTCOME)}
    assert by_outcome == {"completed": (1, 0.5), "port_exit": (1, 0.25)}
    by_version = {row.key: row.spent.cost_usd for row in ledger.reports.cost(CostKey.VERSION)}
    assert by_version == {"claude-code 2.1.0": 0.25, "claude-code unknown": 0.5}
    assert [row.key for row in ledger.reports.cost(CostKey.OUTCOME, since=3.0)] == ["completed"]
