"""Which tasks have yet to be told a turn's result."""

from __future__ import annotations

from accounts import TTL, a_failure, a_request, a_result, claimed

from ops.ledger import Asked, Claim, Ledger
from tests.claiming import claim_turn


def test_tasks_that_wait_for_a_turn_are_known_once_each(ledger: Ledger) -> None:
    for task_id, again in (("t1", False), ("b", False), ("t1", True)):
        assert ledger.admit(a_request("t1"), task_id, 1.0) == Asked(None, again)
    assert ledger.waiters("t1") == {"t1", "b"}
    assert ledger.waiters("t2") == frozenset()
    assert (ledger.turn_of("b"), ledger.turn_of("c")) == ("t1", None)


def test_task_is_forgotten_once_it_was_told(ledger: Ledger) -> None:
    ledger.admit(a_request(), "a", 1.0)
    ledger.admit(a_request(), "b", 1.0)
    ledger.told("t1", "a")
    assert ledger.waiters("t1") == {"b"}
    ledger.told("t1", "b")
    assert ledger.waiters("t1") == frozenset()


def test_settled_turns_with_tasks_that_wait_are_found(ledger: Ledger) -> None:
    ledger.admit(a_request(), "t1", 1.0)
    claim = claim_turn(ledger, "t1", "w1", 1.0, TTL)
    assert isinstance(claim, Claim)
    assert ledger.unanswered(99.0, 1e9) == []
    ledger.settle(claim, a_result(), 10.0)
    assert ledger.unanswered(9.0, 1e9) == []
    assert ledger.unanswered(10.0, 1e9) == ["t1"]
    ledger.told("t1", "t1")
    assert ledger.unanswered(99.0, 1e9) == []


def test_tasks_that_one_worker_tells_late_are_told_by_no_other(ledger: Ledger) -> None:
    for turn_id in ("t1", "t2"):
        ledger.admit(a_request(turn_id), turn_id, 1.0)
        ledger.settle_unclaimed(turn_id, a_failure(turn_id), 10.0)
    assert ledger.lease_unanswered(["t1"], 20.0, 30.0) == {"t1"}
    assert ledger.unanswered(15.0, 20.0) == ["t2"]
    assert ledger.lease_unanswered(["t1", "t2"], 29.0, 40.0) == {"t2"}
    assert ledger.lease_unanswered(["t1", "t2"], 30.0, 40.0) == {"t1"}, "whoever had it was killed"


def test_message_of_a_task_is_kept_until_it_is_told(ledger: Ledger) -> None:
    ledger.admit(a_request(), "t1", 1.0, message='{"headers": {}}')
    ledger.admit(a_request(), "t1", 2.0, message="that of a copy")
    ledger.admit(a_request(), "by hand", 2.0)
    assert ledger.messages("t1") == {"t1": '{"headers": {}}', "by hand": None}
    ledger.told("t1", "t1", "that of a copy")
    assert len(ledger.messages("t1")) == 2, "it was not that one"
    ledger.told("t1", "t1", '{"headers": {}}')
    assert ledger.messages("t1") == {"by hand": None}


def test_turn_waits_for_its_own_task_from_the_moment_it_is_submitted(ledger: Ledger) -> None:
    """A worker may take it before its message has come: that brings what is kept of it, and no second task."""
    ledger.submit_many([a_request()], 1.0)
    claim = claim_turn(ledger, "t1", "w1", 1.0, TTL)
    assert isinstance(claim, Claim)
    assert claim.tasks == {"t1": None}
    assert ledger.admit(a_request(), "t1", 2.0, message="{}") == Asked(None, again=False)
    assert ledger.messages("t1") == {"t1": "{}"}
    assert ledger.admit(a_request(), "t1", 3.0, message="{}") == Asked(None, again=True)


def test_turn_that_was_known_before_it_was_submitted_gets_no_task_by_that(ledger: Ledger) -> None:
    ledger.admit(a_request(), "a", 1.0, message="{}")
    ledger.submit_many([a_request()], 2.0)
    assert ledger.messages("t1") == {"a": "{}"}


def test_copy_that_comes_after_the_end_is_answered_whoever_dies(ledger: Ledger) -> None:
    """Its worker hears of the result, and may be killed before it has told the task: others find it."""
    ledger.settle(claimed(ledger), a_result(), 10.0)
    assert ledger.admit(a_request(), "late", 20.0) == Asked(a_result(), again=True)
    assert ledger.unanswered(20.0, 1e9) == ["t1"]


def test_copy_that_comes_while_others_are_told_is_not_forgotten_with_them(ledger: Ledger) -> None:
    ledger.admit(a_request(), "a", 1.0)
    ledger.settle_unclaimed("t1", a_failure(), 2.0)
    ledger.admit(a_request(), "b", 3.0)
    ledger.told("t1", "a")
    assert ledger.waiters("t1") == {"b"}


def test_task_whose_faulty_request_was_refused_is_answered_whoever_dies(ledger: Ledger) -> None:
    ledger.refuse("t1", "claude-code", a_failure(), "t1", 5.0)
    ledger.refuse("t1", "claude-code", a_failure(), "copy", 7.0)
    assert ledger.unanswered(5.0, 1e9) == ["t1"]
    assert ledger.waiters("t1") == {"t1", "copy"}


def test_turns_that_wait_longest_for_an_answer_come_first(ledger: Ledger) -> None:
    for number, turn_id in enumerate(["c", "a", "b"]):
        for task_id in (turn_id, f"{turn_id}-copy"):
            ledger.admit(a_request(turn_id), task_id, 1.0)
        ledger.settle_unclaimed(turn_id, a_failure(turn_id), 10.0 + number)
    assert ledger.unanswered(99.0, 1e9) == ["c", "a", "b"]
    assert ledger.unanswered(99.0, 1e9, limit=2) == ["c", "a"]
