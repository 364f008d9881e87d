"""Where the workspaces are that were made for turns: for attempts, turns and sessions."""

from __future__ import annotations

import pytest

from adapters.protocol.request import TurnRequest
from ops.errors import StaleClaim
from ops.ledger import Attempt, Claim, Ledger
from tests.support.claiming import claim_turn
from tests.support.ledger.accounts import PLACE, TTL, a_request, a_result, an_end, claimed

MADE = "/home/a/workspaces/t1/workspace"


def begun(ledger: Ledger, claim: Claim, session_id: str = "s1") -> Attempt:
    ledger.sessions.lock(claim, session_id, now=2.0, **{**PLACE, "workspace": ""})
    attempt = ledger.queue.begin_attempt(
        claim, host="local", spool_id=f"{claim.turn_id}.1", session_id=session_id, resume=False, now=2.0
    )
    assert isinstance(attempt, Attempt)
    return attempt


def bringing(ledger: Ledger, **fields: object) -> Claim:
    """A turn that brings its workspace, claimed."""
    document = {"turn_id": "t1", "prompt": "x", "worktree": {"repository": "/srv"}, **fields}
    ledger.queue.submit_many([TurnRequest.parse(document)], 1.0)
    claim = claim_turn(ledger, "t1", "w1", 1.0, TTL)
    assert isinstance(claim, Claim)
    return claim


def test_made_workspace_is_that_of_the_attempt_its_turn_and_its_session(ledger: Ledger) -> None:
    claim = bringing(ledger)
    assert begun(ledger, claim).workspace is None
    for _ in range(2):  # its answer may have been lost
        ledger.workspaces.place(claim, MADE)
    successor = claim_turn(ledger, "t1", "w2", 1.0 + TTL, TTL)
    assert isinstance(successor, Claim)
    assert successor.open is not None
    assert successor.open.workspace == MADE
    assert ledger.accounting.by_spool(["t1.1"])["t1.1"].workspace == ledger.reports.turn("t1").workspace == MADE
    session = ledger.sessions.find("s1")
    assert session is not None
    assert session.workspace == MADE
    with pytest.raises(StaleClaim):
        ledger.workspaces.place(claim, "/elsewhere")
    assert ledger.reports.turn("t1").workspace == MADE


@pytest.mark.parametrize("kept", [True, False])
def test_what_is_to_be_kept_is_known_when_the_turn_is_settled(ledger: Ledger, kept: bool) -> None:
    assert ledger.workspaces.made("t1") is None
    claim = bringing(ledger, keep_workspace=kept)
    begun(ledger, claim)
    ledger.workspaces.place(claim, MADE)
    row = ledger.workspaces.made("t1")
    assert row is not None
    assert row.settled_at is None
    ledger.queue.settle(claim, a_result(), 9.0, an_end())
    row = ledger.workspaces.made("t1")
    assert row is not None
    assert (row.settled_at, row.kept, row.path) == (9.0, kept, MADE)


def test_kept_workspace_stays_kept_when_its_turns_request_is_forgotten(ledger: Ledger) -> None:
    claim = bringing(ledger, keep_workspace=True)
    begun(ledger, claim)
    ledger.workspaces.place(claim, MADE)
    ledger.queue.settle(claim, a_result(), 9.0, an_end())
    assert ledger.retention.forget(details_before=10.0, turns_before=0.0).details == 1
    row = ledger.workspaces.made("t1")
    assert row is not None
    assert (row.settled_at, row.kept, row.path) == (9.0, True, MADE)


def test_workspace_is_in_use_until_its_last_turn_is_settled(ledger: Ledger) -> None:
    assert ledger.workspaces.used_at("/srv/shop") is None
    for number, turn_id in enumerate(("t1", "t2")):
        claim = claimed(ledger, turn_id)
        begun(ledger, claim, f"s{number}")
        ledger.queue.settle(claim, a_result(turn_id), 5.0 + number, an_end())
    assert ledger.workspaces.used_at("/srv/shop") == 6.0
    ledger.queue.submit_many([a_request("t3")], 7.0)
    assert ledger.workspaces.used_at("/srv/shop") is None
