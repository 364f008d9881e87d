"""A worker that is restarted every 3.5 s, whether it has booted by then or not, costs no turn an attempt."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from adapters.protocol.result import Status
from tests.support.fleets.fleet import RUNTURN, WAIT_S, Fleet, slow_recording
from tests.support.fleets.rabbit_fleet import RabbitFleet
from tests.support.processes import handles
from tests.support.waiting import until

EVERY_S = 3.5
RESTARTS = 6


@pytest.fixture(params=["redis", "rabbitmq"])
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fleet]:
    """A fleet without a worker yet, on each kind of broker."""
    with ExitStack() as stack:
        if request.param == "rabbitmq":
            yield stack.enter_context(RabbitFleet(tmp_path, request.getfixturevalue("vhost")))
        else:
            yield stack.enter_context(Fleet(tmp_path))


def test_restarts_cost_no_attempt(fleet: Fleet, recording: Path, tmp_path: Path) -> None:
    slow = slow_recording(tmp_path / "slow.jsonl", recording, 1500)
    turns = [fleet.client.enqueue(fleet.recorded(slow)) for _ in range(4)]
    statuses = []
    for number in range(RESTARTS):
        with (fleet.state.logs / f"worker-{number}.log").open("wb") as log:
            worker = subprocess.Popen([*RUNTURN, "worker"], env=fleet.environment, stdout=log, stderr=log)
        until(lambda pid=worker.pid: handles(pid, signal.SIGTERM), "its first moment")
        time.sleep(EVERY_S)  # it is what is being tested
        worker.terminate()
        statuses.append(worker.wait(WAIT_S))
        if number == RESTARTS // 2:
            turns += [fleet.client.enqueue(fleet.recorded(slow)) for _ in range(2)]
    assert statuses == [0] * RESTARTS
    fleet.start_worker()
    results = [fleet.result(turn_id) for turn_id in turns]
    assert {(result.status, result.attempts) for result in results} == {(Status.COMPLETED, 1)}
    for turn_id in turns:
        names = [event["event"] for event in fleet.events(turn_id)]
        assert names.count("attempt_started") == names.count("session_started") == 1
    fleet.assert_nothing_left()
