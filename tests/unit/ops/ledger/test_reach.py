"""Hosts out of reach: since when."""

from __future__ import annotations

import pytest

from ops.errors import StaleClaim
from ops.ledger import Attempt, Claim, Ledger
from tests.support.claiming import claim_turn
from tests.support.ledger.accounts import TTL, an_end, begun, claimed, tried_again


def parked_and_claimed(ledger: Ledger, claim: Claim, since: float | None, now: float) -> Claim:
    ledger.queue.wait(claim, now + 1, "host_unreachable", now, unreachable_since=since)
    again = claim_turn(ledger, "t1", "w2", now + 1, TTL)
    assert isinstance(again, Claim)
    return again


def of_open(claim: Claim) -> Attempt:
    assert claim.open is not None
    return claim.open


def test_first_time_out_of_reach_stays(ledger: Ledger) -> None:
    claim = claimed(ledger)
    assert begun(ledger, claim).unreachable_since is None
    claim = parked_and_claimed(ledger, claim, None, 10.0)
    assert of_open(claim).unreachable_since is None
    claim = parked_and_claimed(ledger, claim, 20.0, 21.0)
    claim = parked_and_claimed(ledger, claim, 30.0, 31.0)
    assert of_open(claim).unreachable_since == 20.0
    assert of_open(parked_and_claimed(ledger, claim, None, 40.0)).unreachable_since == 20.0


def test_host_that_was_reached_is_out_of_reach_anew(ledger: Ledger) -> None:
    claim = claimed(ledger)
    begun(ledger, claim)
    claim = parked_and_claimed(ledger, claim, 20.0, 21.0)
    ledger.queue.reached(claim)
    ledger.queue.reached(claim)  # its answer was lost
    claim = parked_and_claimed(ledger, claim, None, 30.0)
    assert of_open(claim).unreachable_since is None
    assert of_open(parked_and_claimed(ledger, claim, 40.0, 41.0)).unreachable_since == 40.0


def test_worker_that_was_overtaken_has_reached_nothing(ledger: Ledger) -> None:
    stale = claimed(ledger)
    begun(ledger, stale)
    claim = parked_and_claimed(ledger, stale, 20.0, 21.0)
    with pytest.raises(StaleClaim):
        ledger.queue.reached(stale)
    with pytest.raises(StaleClaim):
        ledger.queue.wait(stale, 60.0, "host_unreachable", 50.0, unreachable_since=5.0)
    assert of_open(parked_and_claimed(ledger, claim, None, 60.0)).unreachable_since == 20.0


def test_only_the_open_attempt_has_a_host_to_be_out_of_reach(ledger: Ledger) -> None:
    claim = claimed(ledger)
    ledger.queue.reached(claim)
    claim = parked_and_claimed(ledger, claim, 5.0, 6.0)  # nothing is open
    begun(ledger, claim, "s1")
    claim = parked_and_claimed(ledger, claim, 20.0, 21.0)
    claim = tried_again(ledger, claim, an_end(1, outcome="host_lost"), 30.0)
    begun(ledger, claim, "s2")
    ledger.queue.reached(claim)
    claim = parked_and_claimed(ledger, claim, 40.0, 41.0)
    assert [attempt.unreachable_since for attempt in claim.attempts] == [20.0, 40.0]


def test_attempt_that_is_booked_is_not_out_of_reach_any_more(ledger: Ledger) -> None:
    claim = claimed(ledger)
    begun(ledger, claim)
    ledger.queue.wait(claim, 20.0, "overloaded", 10.0, an_end(outcome="overloaded"), unreachable_since=5.0)
    again = claim_turn(ledger, "t1", "w2", 20.0, TTL)
    assert isinstance(again, Claim)
    assert [attempt.unreachable_since for attempt in again.attempts] == [None]


def test_successor_learns_how_the_host_was_told_to_end_the_agent(ledger: Ledger) -> None:
    claim = claimed(ledger)
    begun(ledger, claim, lease_s=600, stop_grace_s=2.5)
    again = begun(ledger, claim, lease_s=60, stop_grace_s=1.0)  # repeated: the answer was lost
    assert (again.lease_s, again.stop_grace_s) == (600, 2.5)
    attempt = of_open(parked_and_claimed(ledger, claim, None, 10.0))
    assert (attempt.lease_s, attempt.stop_grace_s) == (600, 2.5)
