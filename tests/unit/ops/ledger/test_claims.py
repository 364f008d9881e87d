"""One turn, one owner."""

from __future__ import annotations

import json

import pytest
import sqlalchemy as sa

from adapters.protocol.request import TurnRequest
from ops.errors import AttemptOpen, StaleClaim, UnknownTurn
from ops.ledger import Claim, Ledger, Renewal, State
from ops.ledger.schema import turns
from tests.support.claiming import claim_turn
from tests.support.ledger.accounts import TTL, a_request, a_result, an_end, begun, claimed, taken, tried_again


def test_turn_submitted_twice_keeps_the_first_request(ledger: Ledger) -> None:
    assert ledger.queue.submit_many([a_request(labels={"team": "web"})], 1.0)
    assert not ledger.queue.submit_many([a_request(labels={"team": "other"}, host="far")], 2.0)
    row = ledger.reports.turn("t1")
    assert (row.created_at, row.host, row.labels, row.state) == (1.0, None, {"team": "web"}, State.QUEUED)
    assert ledger.reports.request("t1") == a_request(labels={"team": "web"})


def test_claim_carries_the_request_as_submitted(ledger: Ledger) -> None:
    request = a_request(prompt_suffix := "t9", options={"model": "opus"}, deadline="2026-12-01T18:00:00+01:00")
    ledger.queue.submit_many([request], 1.0)
    claim = claim_turn(ledger, prompt_suffix, "w1", 2.0, TTL)
    assert isinstance(claim, Claim)
    assert (claim.request, claim.created_at, claim.epoch, claim.open, claim.last) == (request, 1.0, 1, None, None)


@pytest.mark.parametrize(
    ("request_", "names"),
    [
        (a_request(), set()),
        (a_request(labels={}, env=(), stall_timeout_ms=None), set()),
        (a_request(agent="codex"), set()),
        (
            a_request(
                host="far", labels={"team": "web"}, env=("TOKEN",), options={"model": None, "empty": {}},
                output_schema={"type": "object"}, stall_timeout_ms=0, deadline="2026-12-01T18:00:00+01:00",
            ),
            {"host", "labels", "env", "options", "output_schema", "stall_timeout_ms", "deadline"},
        ),
    ],
)  # fmt: skip
def test_request_is_stored_without_what_it_leaves_out_and_read_as_it_was(
    ledger: Ledger, request_: TurnRequest, names: set[str]
) -> None:
    """So that an older worker can read what a newer one has stored, unless it uses a new field."""
    ledger.queue.submit_many([request_], 1.0)
    with ledger._database.read() as connection:
        stored = json.loads(connection.scalars(sa.select(turns.c.request)).one())
    assert set(stored) == {"version", "turn_id", "agent", "prompt", "workspace"} | names
    assert ledger.reports.request("t1") == request_


def test_unknown_turn_is_told_as_such(ledger: Ledger) -> None:
    with pytest.raises(UnknownTurn, match="no turn t1"):
        ledger.reports.turn("t1")


def test_claimed_turn_is_busy_for_everybody_until_the_lease_runs_out(ledger: Ledger) -> None:
    claimed(ledger, owner="w1", now=1.0)
    for owner in ("w2", "w1"):
        assert ledger.queue.take(owner, lambda _: True, 10.9, TTL, 10) == []
    (successor,) = ledger.queue.take("w2", lambda _: True, 11.0, TTL, 10)
    assert successor.epoch == 2


def test_renewed_lease_holds(ledger: Ledger) -> None:
    claim = claimed(ledger, now=1.0)
    assert ledger.queue.renew([claim], 10.0, TTL) == Renewal(frozenset({"t1"}), frozenset())
    assert taken(ledger, 19.9) == []
    assert taken(ledger, 20.0) == ["t1"]


def test_renewal_tells_lost_and_cancelled_turns(ledger: Ledger) -> None:
    claims = [claimed(ledger, turn_id, now=1.0) for turn_id in ("kept", "lost", "cancelled", "settled")]
    claim_turn(ledger, "lost", "w2", 20.0, TTL)
    ledger.queue.cancel("cancelled", 20.0)
    ledger.queue.settle(claims[3], a_result("settled"), 20.0)
    assert ledger.queue.renew(claims, 21.0, TTL) == Renewal(
        frozenset({"kept", "cancelled"}), frozenset({"cancelled"})
    )
    assert ledger.queue.renew([], 21.0, TTL) == Renewal(frozenset(), frozenset())


def test_renewal_leaves_alone_what_the_owner_does_not_know_of(ledger: Ledger) -> None:
    """A claim whose answer was lost expires, although its owner lives and renews its other claims."""
    known, _unknown = claimed(ledger, "known", now=1.0), claimed(ledger, "unknown", now=1.0)
    ledger.queue.renew([known], 10.0, TTL)
    assert isinstance(claim_turn(ledger, "unknown", "w1", 12.0, TTL), Claim)


def test_owner_that_comes_back_late_still_owns_what_nobody_took(ledger: Ledger) -> None:
    claim = claimed(ledger, now=1.0)
    begun(ledger, claim, now=500.0)
    assert ledger.queue.renew([claim], 500.0, TTL).held == {"t1"}


def test_released_turn_is_claimed_at_once_and_its_attempt_attached_to(ledger: Ledger) -> None:
    first = claimed(ledger, now=1.0)
    attempt = begun(ledger, first)
    ledger.queue.release([first], 2.0)
    second = claim_turn(ledger, "t1", "w2", 2.0, TTL)
    assert isinstance(second, Claim)
    assert second.open == attempt
    with pytest.raises(StaleClaim):
        ledger.queue.wait(first, 3.0, "overloaded", 3.0, an_end())


def test_stale_release_does_not_take_the_turn_from_its_new_owner(ledger: Ledger) -> None:
    first = claimed(ledger, now=1.0)
    claim_turn(ledger, "t1", "w2", 20.0, TTL)
    ledger.queue.release([first], 2.0)
    assert taken(ledger, 21.0) == []


def test_stale_claim_writes_nothing(ledger: Ledger) -> None:
    stale = claimed(ledger, now=1.0)
    begun(ledger, stale)
    current = claim_turn(ledger, "t1", "w2", 20.0, TTL)
    assert isinstance(current, Claim)
    place = {"agent": "a", "host": "h", "workspace": "/w"}
    for write in (
        lambda: begun(ledger, stale, "other"),
        lambda: ledger.queue.start(stale),
        lambda: ledger.queue.reached(stale),
        lambda: ledger.events.append(stale, 1, [b"{}"]),
        lambda: ledger.queue.wait(stale, 30.0, "backoff", 21.0, an_end()),
        lambda: ledger.sessions.lock(stale, "session-1", now=21.0, **place),
        lambda: ledger.queue.settle(stale, a_result(), 21.0, an_end()),
    ):
        with pytest.raises(StaleClaim, match="turn t1: the claim of epoch 1"):
            write()
    assert ledger.queue.renew([stale], 21.0, TTL).held == frozenset()
    assert (ledger.accounting.usage_of("t1"), ledger.events.last_seq("t1"), ledger.sessions.find("session-1")) == (
        {},
        0,
        None,
    )
    assert ledger.reports.turn("t1").state is State.RUNNING


def test_worker_that_claims_its_turn_again_has_only_the_new_claim(ledger: Ledger) -> None:
    old, new = claimed(ledger, now=1.0), claimed(ledger, now=20.0)
    assert (old.owner, new.owner) == ("w1", "w1")
    with pytest.raises(StaleClaim):
        begun(ledger, old)
    assert begun(ledger, new).attempt == 1


def test_claim_is_over_once_the_turn_was_released_or_parked(ledger: Ledger) -> None:
    released, parked = claimed(ledger, "released"), claimed(ledger, "parked")
    ledger.queue.release([released], 2.0)
    ledger.queue.wait(parked, 60.0, "overloaded", 2.0)
    for claim in (released, parked):
        with pytest.raises(StaleClaim):
            begun(ledger, claim)
    assert ledger.queue.renew([released, parked], 3.0, TTL).held == frozenset()


def test_settled_turn_is_never_taken_again(ledger: Ledger) -> None:
    claim = claimed(ledger)
    ledger.queue.settle(claim, a_result(), 2.0)
    assert taken(ledger, 99.0) == []


def test_attempt_begun_twice_with_one_spool_is_one_attempt(ledger: Ledger) -> None:
    claim = claimed(ledger)
    assert begun(ledger, claim, "s1") == begun(ledger, claim, "s1", now=7.0)
    assert ledger.reports.turn("t1").attempts == 1


def test_second_attempt_waits_for_the_first_to_be_booked(ledger: Ledger) -> None:
    claim = claimed(ledger)
    begun(ledger, claim, "s1")
    with pytest.raises(AttemptOpen, match="attempt 1 has not ended"):
        begun(ledger, claim, "s2")
    claim = tried_again(ledger, claim, an_end(outcome="host_lost"), 5.0)
    second = begun(ledger, claim, "s2", now=6.0, host="far", session_id="session-2")
    row = ledger.reports.turn("t1")
    assert (second.attempt, row.attempts, row.host, row.session_id, row.started_at) == (
        2,
        2,
        "far",
        "session-2",
        1.0,
    )


def test_successor_knows_all_attempts(ledger: Ledger) -> None:
    first = claimed(ledger)
    one = begun(ledger, first, "s1")
    first = tried_again(ledger, first, an_end(outcome="host_lost"), 5.0)
    begun(ledger, first, "s2", now=6.0)
    second = claim_turn(ledger, "t1", "w2", 50.0, TTL)
    assert isinstance(second, Claim)
    assert [(a.attempt, a.spool_id, a.outcome, a.ended_at) for a in second.attempts] == [
        (1, "s1", "host_lost", 5.0),
        (2, "s2", None, None),
    ]
    assert (second.open, second.last) == (second.attempts[1], second.attempts[1])
    assert one.ended_at is None


def test_parked_turn_comes_back_when_it_is_due(ledger: Ledger) -> None:
    claim = claimed(ledger)
    ledger.queue.wait(claim, 60.0, "rate_limited", 2.0)
    assert taken(ledger, 59.0) == []
    assert taken(ledger, 60.0) == ["t1"]
    assert taken(ledger, 61.0) == []


def test_turn_of_a_dead_owner_is_taken_with_its_attempt(ledger: Ledger) -> None:
    attempt = begun(ledger, claimed(ledger, now=1.0))
    assert taken(ledger, 10.9) == []
    (successor,) = ledger.queue.take("w2", lambda _: True, 11.0, TTL, 10)
    assert successor.open == attempt
    assert taken(ledger, 12.0) == []


def test_owner_that_renewed_in_time_keeps_its_turn(ledger: Ledger) -> None:
    claim = claimed(ledger, now=1.0)
    ledger.queue.renew([claim], 10.5, TTL)
    assert taken(ledger, 12.0) == []
    assert ledger.queue.renew([claim], 13.0, TTL).held == {"t1"}


def test_released_turns_are_free_at_once(ledger: Ledger) -> None:
    held = [claimed(ledger, name, now=1.0) for name in ("t1", "t2", "t3")]
    ledger.queue.release(held[:2], 2.0)
    assert taken(ledger, 2.0) == ["t1", "t2"]
    ledger.queue.release(held, 3.0)
    assert taken(ledger, 3.0) == ["t3"]  # of the others, the claims are stale


def test_claims_are_looked_at_without_being_prolonged(ledger: Ledger) -> None:
    kept, cancelled, lost = (claimed(ledger, name, now=1.0) for name in ("kept", "cancelled", "lost"))
    ledger.queue.cancel("cancelled", 2.0)
    assert isinstance(claim_turn(ledger, "lost", "w2", 50.0, TTL), Claim)
    expected = Renewal(frozenset({"kept", "cancelled"}), frozenset({"cancelled"}))
    assert ledger.queue.standing([kept, cancelled, lost]) == expected
    assert ledger.queue.standing([]) == Renewal(frozenset(), frozenset())
    assert sorted(taken(ledger, 1.0 + TTL)) == ["cancelled", "kept"]


@pytest.mark.parametrize("times", [1, 2], ids=["answered", "answer lost"])
def test_turn_that_was_given_an_agent_stays_with_it(ledger: Ledger, times: int) -> None:
    ledger.queue.submit_many([a_request(agent="auto", labels={"team": "web"})], 1.0)
    claim = claim_turn(ledger, "t1", "w1", 1.0, TTL)
    assert isinstance(claim, Claim)
    routed = [ledger.queue.route(claim, "codex", 1, b'{"event":"agent_chosen"}') for _ in range(times)][-1]
    assert routed.request == a_request(agent="codex", labels={"team": "web"})
    assert (ledger.reports.turn("t1").agent, ledger.events.last_seq("t1")) == ("codex", 1)
    successor = claim_turn(ledger, "t1", "w2", 50.0, TTL)
    assert isinstance(successor, Claim)
    assert successor.request == routed.request
    with pytest.raises(StaleClaim):
        ledger.queue.route(routed, "gemini", 2, b"{}")
    assert ledger.reports.turn("t1").agent == "codex"
