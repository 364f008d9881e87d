"""What a real worker shows of itself: over SSH, without its broker, and of turns that it took over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from adapters.protocol.result import Status
from tests.support.fleets.fleet import Fleet, Worker
from tests.support.fleets.live_fleet import LiveFleet
from tests.support.pages import Samples, scrape, verdict
from tests.support.places import RECORDINGS
from tests.support.ssh.ssh_host import ssh_host, ssh_hosts
from tests.support.ssh.ssh_logins import Login
from tests.support.waiting import until
from workers.app import TASK, create_app

RECORDING = RECORDINGS / "a_parallel_tools.jsonl"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Fleet, Worker, Login]]:
    """A worker with a host that answers and one that does not."""
    root = tmp_path_factory.mktemp("metrics")
    with ssh_host("h1", root) as login:
        down = {"name": "down", "address": "127.0.0.1:1"}
        with Fleet(root, ssh_hosts=ssh_hosts(login.setting(agents={}, max_concurrent_agents=3), down)) as fleet:
            yield fleet, fleet.start_worker(), login


def value(samples: Samples, name: str, **labels: str) -> float | None:
    """One sample; None: there is none."""
    return samples.get((f"runturn_{name}", tuple(sorted(labels.items()))))


def test_turn_over_ssh_is_counted_with_its_connection(place: tuple[Fleet, Worker, Login]) -> None:
    fleet, worker, _ = place
    result = fleet.run(fleet.recorded(RECORDING, host="h1"))
    assert result.status is Status.COMPLETED
    ended = {"agent": "scripted", "launcher": "ssh", "outcome": "completed"}
    # It is counted after it was settled.
    until(lambda: value(scrape(worker.metrics), "turns_total", **ended) == 1, "the turn to be counted")
    samples = scrape(worker.metrics)
    assert value(samples, "turn_first_event_seconds_count", launcher="ssh") == 1
    assert value(samples, "tool_calls_total", agent="scripted", tool="Bash", outcome="ok") == 2
    assert (value(samples, "ssh_connections", host="h1") or 0) >= 1
    assert (value(samples, "ssh_connects_total", host="h1", outcome="ok") or 0) >= 1
    assert value(samples, "host_slots", host="h1") == 3
    assert value(samples, "host_up", host="h1") == 1


def test_host_that_is_down_is_counted_and_shown(place: tuple[Fleet, Worker, Login]) -> None:
    fleet, worker, _ = place
    fleet.client.enqueue(fleet.recorded(RECORDING, host="down"))
    until(lambda: value(scrape(worker.metrics), "host_up", host="down") == 0, "the host to be avoided")
    samples = scrape(worker.metrics)
    assert (value(samples, "ssh_connects_total", host="down", outcome="host_unreachable") or 0) >= 3
    assert value(samples, "ssh_connects_total", host="h1", outcome="host_unreachable") == 0


def test_turn_that_is_taken_over_is_counted_once(tmp_path: Path) -> None:
    with LiveFleet(tmp_path) as fleet:
        first = fleet.start_worker()
        turn = fleet.talking(RECORDING)
        first.kill()
        second = fleet.start_worker()
        until(lambda: value(scrape(second.metrics), "reattachments_total", cause="worker"), "its successor")
        turn.finish()
        assert fleet.result(turn).status is Status.COMPLETED
        until(lambda: value(scrape(second.metrics), "turns_in_flight") == 0, "the turn to be let go of")
        samples = scrape(second.metrics)
    assert value(samples, "reattachments_total", cause="worker") == 1
    assert value(samples, "reattachments_total", cause="link") == 0
    assert value(samples, "turn_queue_wait_seconds_count", queue="runturn") == 0  # the first one counted that
    assert value(samples, "turn_first_event_seconds_count", launcher="local") == 0


def test_copies_and_refusals_are_counted(tmp_path: Path) -> None:
    with Fleet(tmp_path) as fleet:
        worker = fleet.start_worker()
        refused = {"agent": "claude-code", "launcher": "none", "outcome": "invalid_request"}
        app = create_app(fleet.broker.url)
        for _ in range(2):
            app.send_task(TASK, args=[{"agent": "claude-code"}], task_id="faulty")
        until(lambda: value(scrape(worker.metrics), "duplicate_deliveries_total") == 1, "the refusal's copy")
        assert value(scrape(worker.metrics), "turns_total", **refused) == 1
        request = fleet.recorded(RECORDING)
        fleet.run(request)
        for _ in range(2):
            fleet.client.enqueue(request)
        until(lambda: value(scrape(worker.metrics), "duplicate_deliveries_total") == 3, "two more copies")


def test_worker_without_its_broker_says_so_and_recovers(tmp_path: Path) -> None:
    with Fleet(tmp_path) as fleet:
        worker = fleet.start_worker()
        url = worker.metrics.removesuffix("/metrics")
        until(lambda: verdict(f"{url}/readyz") == (200, {}), "a worker that is ready")
        fleet.broker.stop()
        until(lambda: "broker" in verdict(f"{url}/readyz")[1], "the broker to be missed")
        assert verdict(f"{url}/livez") == (200, {})
        assert value(scrape(worker.metrics), "dependency_up", dependency="broker") == 0
        assert value(scrape(worker.metrics), "dependency_up", dependency="ledger") == 1
        fleet.broker.ensure()
        until(lambda: verdict(f"{url}/readyz") == (200, {}), "a worker that is ready again")
        worker.terminate()
        assert worker.wait() == 0
