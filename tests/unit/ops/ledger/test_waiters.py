"""Which tasks have yet to be told a turn's result."""

from __future__ import annotations

from dataclasses import replace

from ops.ledger import Asked, Claim, Ledger, Waiter
from ops.ledger.queue.waiters import LEASE_S
from tests.support.claiming import claim_turn
from tests.support.ledger.accounts import TTL, a_failure, a_request, a_result, claimed
from tests.support.ledgers import tasks_of


def test_tasks_that_wait_for_a_turn_are_known_once_each(ledger: Ledger) -> None:
    for task_id, again in (("t1", False), ("b", False), ("t1", True)):
        assert ledger.queue.admit(a_request("t1"), task_id, 1.0) == Asked(None, again)
    assert tasks_of(ledger, "t1") == {"t1", "b"}
    assert tasks_of(ledger, "t2") == frozenset()
    assert (ledger.waiters.turn_of("b"), ledger.waiters.turn_of("c")) == ("t1", None)


def test_task_is_forgotten_once_it_was_told(ledger: Ledger) -> None:
    ledger.queue.admit(a_request(), "a", 1.0)
    ledger.queue.admit(a_request(), "b", 1.0)
    ledger.waiters.told(Waiter("t1", "a"))
    assert tasks_of(ledger, "t1") == {"b"}
    ledger.waiters.told(Waiter("t1", "b"))
    assert tasks_of(ledger, "t1") == frozenset()


def test_settled_turns_with_tasks_that_nobody_tells_are_found(ledger: Ledger) -> None:
    for task_id in ("t1", "copy"):
        ledger.queue.admit(a_request(), task_id, 1.0)
    claim = claim_turn(ledger, "t1", "w1", 1.0, TTL)
    assert isinstance(claim, Claim)
    assert claim.waiter == Waiter("t1", "t1")
    assert ledger.waiters.unanswered(99.0) == []
    ledger.queue.settle(claim, a_result(), 10.0)
    assert ledger.waiters.unanswered(10.0) == ["t1"], "its copy"
    (copy, own) = ledger.waiters.of("t1")
    assert ledger.waiters.lease(own, 10.0 + LEASE_S - 1) is None, "whoever has ended the turn is telling it"
    ledger.waiters.told(copy)
    assert ledger.waiters.unanswered(10.0 + LEASE_S - 1) == []
    assert ledger.waiters.unanswered(10.0 + LEASE_S) == ["t1"], "whoever has ended the turn was killed"
    ledger.waiters.told(own)
    assert ledger.waiters.unanswered(99.0) == []


def test_task_is_told_by_one_worker_at_a_time(ledger: Ledger) -> None:
    for turn_id in ("t1", "t2"):
        ledger.queue.admit(a_request(turn_id), turn_id, 1.0)
        ledger.queue.settle_unclaimed(turn_id, a_failure(turn_id), 10.0)
    (waiter,) = ledger.waiters.of("t1")
    assert ledger.waiters.lease(waiter, 20.0) == waiter
    assert ledger.waiters.unanswered(20.0) == ["t2"]
    assert ledger.waiters.lease(waiter, 19.0 + LEASE_S) is None
    ledger.waiters.renew([waiter], 19.0 + LEASE_S)
    assert ledger.waiters.lease(waiter, 18.0 + 2 * LEASE_S) is None
    assert ledger.waiters.lease(waiter, 19.0 + 2 * LEASE_S) == waiter, "whoever had it was killed"
    ledger.waiters.told(waiter)
    assert ledger.waiters.lease(waiter, 1e9) is None, "it was told"


def test_task_that_could_not_be_told_waits_with_a_note_of_what_was_sent(ledger: Ledger) -> None:
    ledger.queue.admit(a_request(), "t1", 1.0)
    ledger.queue.settle_unclaimed("t1", a_failure(), 10.0)
    (waiter,) = ledger.waiters.of("t1")
    ledger.waiters.put_off(waiter, 500.0, {"b", "a"})
    assert ledger.waiters.unanswered(499.0) == []
    assert ledger.waiters.lease(waiter, 500.0) == replace(waiter, sent=frozenset({"a", "b"}))


def test_message_of_a_task_is_kept_until_it_is_told(ledger: Ledger) -> None:
    ledger.queue.admit(a_request(), "t1", 1.0, message='{"headers": {}}')
    ledger.queue.admit(a_request(), "t1", 2.0, message="that of a copy")
    ledger.queue.admit(a_request(), "by hand", 2.0)
    kept = [Waiter("t1", "by hand"), Waiter("t1", "t1", message='{"headers": {}}')]
    assert list(ledger.waiters.of("t1")) == kept
    ledger.waiters.told(kept[1])
    assert list(ledger.waiters.of("t1")) == kept[:1]


def test_task_that_is_sent_again_with_something_else_to_follow_is_another_one(ledger: Ledger) -> None:
    for follows in ("", "a chord", "another chord", "a chord"):
        ledger.queue.admit(a_request(), "t1", 1.0, follows=follows, message=f"{{{follows}}}")
    ledger.queue.settle(claimed(ledger), a_result(), 10.0)
    assert [waiter.follows for waiter in ledger.waiters.of("t1")] == ["", "a chord", "another chord"]
    ledger.waiters.told(Waiter("t1", "t1", "a chord"))
    assert [waiter.message for waiter in ledger.waiters.of("t1")] == ["{}", "{another chord}"]


def test_message_with_something_to_follow_takes_the_place_of_what_was_noted_before_it(ledger: Ledger) -> None:
    ledger.queue.submit_many([a_request()], 1.0)
    assert ledger.queue.admit(a_request(), "t1", 2.0, follows="a link", message="{}") == Asked(None, again=False)
    assert ledger.waiters.of("t1") == (Waiter("t1", "t1", "a link", "{}"),)


def test_turn_waits_for_its_own_task_from_the_moment_it_is_submitted(ledger: Ledger) -> None:
    """A worker may take it before its message has come: that brings what is kept of it, and no second task."""
    ledger.queue.submit_many([a_request()], 1.0)
    claim = claim_turn(ledger, "t1", "w1", 1.0, TTL)
    assert isinstance(claim, Claim)
    assert claim.waiters == (Waiter("t1", "t1"),)
    assert ledger.queue.admit(a_request(), "t1", 2.0, message="{}") == Asked(None, again=False)
    assert ledger.waiters.of("t1") == (Waiter("t1", "t1", message="{}"),)
    assert ledger.queue.admit(a_request(), "t1", 3.0, message="{}") == Asked(None, again=True)


def test_turn_that_was_known_before_it_was_submitted_gets_no_task_by_that(ledger: Ledger) -> None:
    ledger.queue.admit(a_request(), "a", 1.0, message="{}")
    ledger.queue.submit_many([a_request()], 2.0)
    assert ledger.waiters.of("t1") == (Waiter("t1", "a", message="{}"),)


def test_copy_that_comes_after_the_end_is_answered_whoever_dies(ledger: Ledger) -> None:
    """Its worker hears of the result, and may be killed before it has told the task: others find it."""
    ledger.queue.settle(claimed(ledger), a_result(), 10.0)
    assert ledger.queue.admit(a_request(), "late", 20.0) == Asked(a_result(), again=True)
    assert ledger.waiters.unanswered(20.0) == ["t1"]


def test_copy_that_comes_while_others_are_told_is_not_forgotten_with_them(ledger: Ledger) -> None:
    ledger.queue.admit(a_request(), "a", 1.0)
    ledger.queue.settle_unclaimed("t1", a_failure(), 2.0)
    ledger.queue.admit(a_request(), "b", 3.0)
    ledger.waiters.told(Waiter("t1", "a"))
    assert tasks_of(ledger, "t1") == {"b"}


def test_task_whose_faulty_request_was_refused_is_answered_whoever_dies(ledger: Ledger) -> None:
    ledger.queue.refuse("t1", "claude-code", a_failure(), "t1", 5.0)
    ledger.queue.refuse("t1", "claude-code", a_failure(), "copy", 7.0)
    assert ledger.waiters.unanswered(5.0) == ["t1"]
    assert tasks_of(ledger, "t1") == {"t1", "copy"}


def test_turns_that_wait_longest_for_an_answer_come_first(ledger: Ledger) -> None:
    for number, turn_id in enumerate(["c", "a", "b"]):
        for task_id in (turn_id, f"{turn_id}-copy"):
            ledger.queue.admit(a_request(turn_id), task_id, 1.0)
        ledger.queue.settle_unclaimed(turn_id, a_failure(turn_id), 10.0 + number)
    assert ledger.waiters.unanswered(99.0) == ["c", "a", "b"]
    assert ledger.waiters.unanswered(99.0, limit=2) == ["c", "a"]
