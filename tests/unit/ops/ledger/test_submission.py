"""Many turns in one transaction, and the question which of many are settled."""

from __future__ import annotations

import pytest

from ops.ledger import Claim, Ledger, State
from ops.ledger.queue import settlement
from tests.support.claiming import claim_turn
from tests.support.ledger.accounts import TTL, a_request, a_usage, claimed, completed
from tests.support.ledger.processes import Crew


def test_turns_that_are_known_stay_as_they_are(ledger: Ledger) -> None:
    ledger.queue.submit_many([a_request("t2", labels={"team": "first"})], 1.0)
    wanted = [a_request(f"t{number}", labels={"team": "web"}) for number in (3, 1, 2)]
    assert ledger.queue.submit_many(iter(wanted), 2.0) == {"t1", "t3"}
    assert ledger.queue.submit_many(wanted, 3.0) == frozenset()
    assert {row.turn_id: (row.labels["team"], row.created_at) for row in ledger.reports.history()} == {
        "t1": ("web", 2.0),
        "t2": ("first", 1.0),
        "t3": ("web", 2.0),
    }
    assert ledger.queue.submit_many([], 4.0) == frozenset()


def test_turn_that_is_asked_for_twice_at_once_is_entered_once(ledger: Ledger) -> None:
    assert ledger.queue.submit_many([a_request("t1"), a_request("t1")], 1.0) == {"t1"}


def _submit(number: int, url: str) -> int:
    order = [a_request(f"t{turn}") for turn in range(200)]
    with Ledger.open(url) as ledger:
        return len(ledger.queue.submit_many(order[::-1] if number % 2 else order, 1.0))


def test_eight_producers_of_the_same_turns_do_not_lock_each_other_out(
    ledger: Ledger, ledger_url: str, crew: Crew
) -> None:
    assert sum(crew.together(_submit, ledger_url)) == 200
    assert ledger.reports.queue_depths()[State.QUEUED] == 200


def test_settled_turns_are_told_from_others(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settlement, "_ASKED_AT_ONCE", 2)
    for number in range(3):
        completed(ledger, f"settled-{number}", a_usage())
    ledger.queue.submit_many([a_request("queued")], 1.0)
    asked = ["queued", "settled-0", "unknown", "settled-1", "settled-2"]
    assert ledger.queue.settled(asked) == {"settled-0", "settled-1", "settled-2"}
    assert ledger.queue.settled([]) == frozenset()


@pytest.mark.parametrize(
    ("asked", "expires_at"),
    [
        ([9.0], 9.0),
        ([9.0, 5.0], 9.0),
        ([5.0, 9.0], 9.0),
        ([5.0, None], None),
        ([None, 5.0], None),
    ],
)
def test_turn_may_begin_for_as_long_as_one_of_its_tasks_wants_it(
    ledger: Ledger, asked: list[float | None], expires_at: float | None
) -> None:
    for number, expires in enumerate(asked):
        ledger.queue.admit(a_request(), f"task-{number}", 1.0, expires_at=expires)
    claim = claim_turn(ledger, "t1", "w1", 1.0, TTL)
    assert isinstance(claim, Claim)
    assert claim.expires_at == expires_at


def test_turn_that_is_submitted_without_a_limit_has_none(ledger: Ledger) -> None:
    ledger.queue.admit(a_request(), "task", 1.0, expires_at=5.0)
    ledger.queue.submit_many([a_request()], 2.0)
    claim = claim_turn(ledger, "t1", "w1", 2.0, TTL)
    assert isinstance(claim, Claim)
    assert claim.expires_at is None


def test_revoked_copy_of_a_running_turn_leaves_that_alone(ledger: Ledger) -> None:
    claim = claimed(ledger)
    ledger.queue.admit(a_request(), "t1", 5.0, revoked=True)
    assert ledger.queue.standing([claim]).cancelled == frozenset()
