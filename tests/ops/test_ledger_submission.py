"""Many turns in one transaction, and the question which of many are settled."""

from __future__ import annotations

import pytest
from accounts import a_request, a_usage, completed
from processes import Crew

from ops.ledger import Ledger, State, settlement


def test_turns_that_are_known_stay_as_they_are(ledger: Ledger) -> None:
    ledger.submit_many([a_request("t2", labels={"team": "first"})], 1.0)
    wanted = [a_request(f"t{number}", labels={"team": "web"}) for number in (3, 1, 2)]
    assert ledger.submit_many(iter(wanted), 2.0) == {"t1", "t3"}
    assert ledger.submit_many(wanted, 3.0) == frozenset()
    assert {row.turn_id: (row.labels["team"], row.created_at) for row in ledger.history()} == {
        "t1": ("web", 2.0),
        "t2": ("first", 1.0),
        "t3": ("web", 2.0),
    }
    assert ledger.submit_many([], 4.0) == frozenset()


def test_turn_that_is_asked_for_twice_at_once_is_entered_once(ledger: Ledger) -> None:
    assert ledger.submit_many([a_request("t1"), a_request("t1")], 1.0) == {"t1"}


def _submit(number: int, url: str) -> int:
    order = [a_request(f"t{turn}") for turn in range(200)]
    with Ledger.open(url) as ledger:
        return len(ledger.submit_many(order[::-1] if number % 2 else order, 1.0))


def test_eight_producers_of_the_same_turns_do_not_lock_each_other_out(
    ledger: Ledger, ledger_url: str, crew: Crew
) -> None:
    assert sum(crew.together(_submit, ledger_url)) == 200
    assert ledger.queue_depths()[State.QUEUED] == 200


def test_settled_turns_are_told_from_others(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settlement, "_ASKED_AT_ONCE", 2)
    for number in range(3):
        completed(ledger, f"settled-{number}", a_usage())
    ledger.submit_many([a_request("queued")], 1.0)
    asked = ["queued", "settled-0", "unknown", "settled-1", "settled-2"]
    assert ledger.settled(asked) == {"settled-0", "settled-1", "settled-2"}
    assert ledger.settled([]) == frozenset()
