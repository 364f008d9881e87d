"""A broker that goes away and comes back costs no turn, and no turn runs twice."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
import redis

from adapters.protocol.result import Status
from tests.support.fleets.fleet import RUNTURN, WAIT_S, Fleet, slow_recording
from tests.support.processes import gone_pid
from tests.support.waiting import until
from workers.app import QUEUE, create_app
from workers.brokers.redis_transport import UNACKED


def _kill_broker(fleet: Fleet) -> None:
    with redis.Redis(unix_socket_path=str(fleet.broker.socket)) as client:
        pid = int(client.info("server")["process_id"])
    os.kill(pid, signal.SIGKILL)
    until(lambda: gone_pid(pid), "the broker to be dead")


def _drop_connections(fleet: Fleet) -> None:
    with redis.Redis(unix_socket_path=str(fleet.broker.socket)) as client:
        client.client_kill_filter(_type="normal", skipme=True)


@pytest.mark.parametrize("fault", ["killed", "dropped"])
def test_turn_outlives_its_broker(fleet: Fleet, recording: Path, tmp_path: Path, fault: str) -> None:
    slow = slow_recording(tmp_path / "slow.jsonl", recording, 1000)
    worker = fleet.start_worker()
    turn_id = fleet.client.enqueue(fleet.recorded(slow))
    until(lambda: len(fleet.events(turn_id)) > 2, "the turn to be under way")
    if fault == "killed":
        _kill_broker(fleet)
        fleet.broker.ensure()
    else:
        _drop_connections(fleet)
    until(lambda: fleet.ledger.reports.result(turn_id), "the turn to be settled")
    answer = create_app(fleet.broker.url).AsyncResult(turn_id)
    assert answer.get(timeout=WAIT_S)["status"] == Status.COMPLETED
    names = [event["event"] for event in fleet.events(turn_id)]
    assert names.count("session_started") == names.count("attempt_started") == 1
    assert worker.process.poll() is None, worker.log.read_text()
    with redis.Redis(unix_socket_path=str(fleet.broker.socket)) as client:
        until(lambda: not client.hlen(UNACKED) and not client.llen(QUEUE), "all messages to be acked")
    assert fleet.run(fleet.recorded(recording)).status is Status.COMPLETED
    fleet.assert_nothing_left()


def test_killed_watcher_leaves_no_queue_that_fills_on(fleet: Fleet, recording: Path, tmp_path: Path) -> None:
    turn_id = fleet.client.enqueue(fleet.recorded(slow_recording(tmp_path / "slow.jsonl", recording, 300)))
    with redis.Redis(unix_socket_path=str(fleet.broker.socket)) as client:
        others = client.pubsub_numpat()
        watcher = subprocess.Popen([*RUNTURN, "watch", turn_id], env=fleet.environment, stderr=subprocess.DEVNULL)
        until(lambda: client.pubsub_numpat() > others, "a watcher")
        watcher.kill()
        watcher.wait()
        fleet.start_worker()
        assert fleet.result(turn_id).status is Status.COMPLETED
        filled = [key for key in client.scan_iter() if client.type(key) == b"list" and key != QUEUE.encode()]
        assert filled == []
        assert not client.exists("_kombu.binding.runturn.events.fanout")  # or it would grow by each of them


def test_queued_turns_survive_a_killed_broker(fleet: Fleet, recording: Path) -> None:
    turns = [fleet.client.enqueue(fleet.recorded(recording)) for _ in range(5)]
    _kill_broker(fleet)
    fleet.broker.ensure()
    fleet.start_worker()
    assert {fleet.result(turn_id).status for turn_id in turns} == {Status.COMPLETED}
