"""Ids that people shorten, on both databases."""

from __future__ import annotations

import pytest

from adapters.protocol.session_request import SessionRequest
from adapters.protocol.session_result import Check
from ops.ledger import Claim, Ledger
from tests.support.claiming import claim_turn
from tests.support.ledger.accounts import TTL, a_failure, a_request, a_result, an_end, begun

FAILED = Check(command="make test", exit=1, duration_ms=5, tail="broken")


def session_of_two_turns(ledger: Ledger, run_id: str) -> None:
    turn = {"prompt": "mend it", "workspace": "/srv/shop"}
    ledger.session_runs.submit(
        SessionRequest.parse({"run_id": run_id, "turn": turn, "test_commands": ["make test"]}), 1.0
    )
    claim = claim_turn(ledger, f"{run_id}.1", "worker", 1.0, TTL)
    assert isinstance(claim, Claim)
    begun(ledger, claim)
    ledger.queue.settle(claim, a_result(claim.turn_id, session_id="session-1"), 2.0, an_end(), [FAILED])


def test_ids_that_start_alike_are_found_in_order_and_no_others(ledger: Ledger) -> None:
    ledger.queue.submit_many([a_request(turn_id) for turn_id in ("abcd-2", "abcd-1", "abce", "ABCD-3")], 1.0)
    assert ledger.reports.starting_with("abcd", 6) == ["abcd-1", "abcd-2"]
    assert ledger.reports.starting_with("abcd", 1) == ["abcd-1"]
    assert ledger.reports.starting_with("abce", 6) == ["abce"]
    assert ledger.reports.starting_with("bcd", 6) == []


def test_equal_id_comes_first_however_many_start_with_it(ledger: Ledger) -> None:
    ledger.queue.submit_many([a_request(f"turn-1{suffix}") for suffix in ("", "0", "-", ".9", "A")], 1.0)
    assert ledger.reports.starting_with("turn-1", 2)[0] == "turn-1"


@pytest.mark.parametrize("turn_id", ["100%_of\\it", "a'b\"c;", "Größe/1", "[x]*?"])
def test_any_character_stands_for_itself(ledger: Ledger, turn_id: str) -> None:
    for each in (turn_id, "100 percent of it", "aabbcc", "x"):
        ledger.queue.refuse(each, "claude-code", a_failure(each), each, 1.0)
    assert ledger.reports.starting_with(turn_id[:4], 6) == [turn_id]
    assert ledger.reports.starting_with(turn_id, 6) == [turn_id]


def test_session_stands_for_its_turns_and_each_has_a_number(ledger: Ledger) -> None:
    session_of_two_turns(ledger, "abcd-run")
    assert ledger.reports.starting_with("abcd", 6) == ["abcd-run"]
    assert ledger.reports.starting_with("abcd.2", 6) == ["abcd-run.2"]
    assert ledger.reports.starting_with("abcd-run.1", 6) == ["abcd-run.1"]
    assert ledger.reports.starting_with("abcd-run.", 6) == ["abcd-run.1", "abcd-run.2"]
    assert ledger.reports.starting_with("abcd.3", 6) == []
