"""Workers of several machines share a broker and a ledger: each runs the turns for its own machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapters.protocol.result import Status
from tests.support.fleets.fleet import Fleet


@pytest.fixture
def machines(fleet: Fleet) -> Fleet:
    """Two workers that know a host each."""
    for name in ("left", "right"):
        fleet.environment["RUNTURN_HOST_NAME"] = name
        fleet.start_worker()
    return fleet


def test_turn_runs_on_the_machine_that_it_asks_for_whoever_got_its_message(
    machines: Fleet, recording: Path
) -> None:
    wanted = ["left", "right"] * 3
    ids = [machines.client.enqueue(machines.recorded(recording, host=host)) for host in wanted]
    results = [machines.result(turn_id) for turn_id in ids]
    assert [(result.status, result.host, result.attempts) for result in results] == [
        (Status.COMPLETED, host, 1) for host in wanted
    ]


def test_session_is_resumed_on_its_machine(machines: Fleet, recording: Path) -> None:
    first = machines.run(machines.recorded(recording, host="right"))
    second = machines.run(machines.recorded(recording, session_id=first.session_id))
    assert (second.status, second.host) == (Status.COMPLETED, "right")


def test_machine_that_no_worker_knows_is_refused(machines: Fleet, recording: Path) -> None:
    result = machines.run(machines.recorded(recording, host="nowhere"))
    assert result.error is not None
    assert (result.error.kind, result.attempts) == ("invalid_request", 0)
    assert "there is no host 'nowhere'" in result.error.message


def test_turn_for_a_machine_that_is_being_redeployed_waits_for_it(fleet: Fleet, recording: Path) -> None:
    fleet.environment["RUNTURN_HOST_NAME"] = "here"
    fleet.start_worker()
    fleet.environment["RUNTURN_HOST_NAME"] = "gone"
    gone = fleet.start_worker()
    gone.terminate()
    gone.wait()
    turn_id = fleet.client.enqueue(fleet.recorded(recording, host="gone"))
    fleet.run(fleet.recorded(recording))  # the other worker has looked at the queue
    assert fleet.ledger.reports.turn(turn_id).state == "queued"
    fleet.start_worker()
    assert fleet.result(turn_id).host == "gone"
