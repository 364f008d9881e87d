"""Events for those who come late."""

from __future__ import annotations

import pytest

from ops.errors import EventGap
from ops.ledger import Claim, Ledger
from tests.support.claiming import claim_turn
from tests.support.ledger.accounts import TTL, an_end, begun, claimed, tried_again


def lines(first: int, last: int) -> list[bytes]:
    return [b'{"seq":%d}' % seq for seq in range(first, last + 1)]


def test_events_are_read_back_after_any_number(ledger: Ledger) -> None:
    claim = claimed(ledger)
    assert ledger.events.after("t1") == []
    assert ledger.events.append(claim, 1, lines(1, 3)) == 3
    assert ledger.events.append(claim, 4, lines(4, 5)) == 5
    every = list(zip(range(1, 6), lines(1, 5), strict=True))
    for after in range(7):
        assert ledger.events.after("t1", after) == every[after:]
    assert ledger.events.last_seq("t1") == 5


def test_successor_that_offers_everything_again_stores_only_what_is_new(ledger: Ledger) -> None:
    first = claimed(ledger)
    ledger.events.append(first, 1, lines(1, 3))
    second = claim_turn(ledger, "t1", "w2", 50.0, TTL)
    assert isinstance(second, Claim)
    assert ledger.events.append(second, 1, lines(1, 3)) == 3
    assert ledger.events.append(second, 1, lines(1, 6)) == 6
    assert ledger.events.append(second, 5, lines(5, 8)) == 8
    assert ledger.events.append(second, 2, []) == 8
    assert ledger.events.after("t1") == list(zip(range(1, 9), lines(1, 8), strict=True))


def test_gap_is_refused(ledger: Ledger) -> None:
    claim = claimed(ledger)
    ledger.events.append(claim, 1, lines(1, 3))
    with pytest.raises(EventGap, match="event 5 offered, but the last one stored is 3"):
        ledger.events.append(claim, 5, lines(5, 6))


def test_next_attempt_is_numbered_from_the_last_event(ledger: Ledger) -> None:
    claim = claimed(ledger)
    assert begun(ledger, claim, "s1").first_seq == 1
    ledger.events.append(claim, 1, lines(1, 7))
    claim = tried_again(ledger, claim, an_end(outcome="overloaded"), 2.0)
    assert begun(ledger, claim, "s2").first_seq == 8


def test_large_and_odd_lines_survive(ledger: Ledger) -> None:
    claim = claimed(ledger)
    odd = [b"x" * 5_000_000, b"", "ä€\u2028".encode(), b"\xff\x00"]
    ledger.events.append(claim, 1, odd)
    assert [line for _, line in ledger.events.after("t1")] == odd
