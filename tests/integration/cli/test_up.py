"""`runturn up`: a broker and a worker, together from the beginning to the end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from adapters.protocol.result import Status
from tests.integration.cli.conftest import Cli
from tests.support.fleets.fleet import RUNTURN, WAIT_S, Fleet
from tests.support.waiting import until
from workers.app import TASK, create_app


class Up:
    """`runturn up` in the background."""

    def __init__(self, fleet: Fleet) -> None:
        self.log = fleet.state.logs / "up.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen([*RUNTURN, "up"], env=fleet.environment, stdout=log, stderr=log)
        until(lambda: "worker is ready" in self.log.read_text() or self.process.poll() is not None, "the worker")

    def stop(self, number: signal.Signals) -> int:
        """Send a signal; returns the exit status."""
        self.process.send_signal(number)
        return self.process.wait(WAIT_S)


@pytest.fixture
def up(fleet: Fleet, request: pytest.FixtureRequest) -> Iterator[Up]:
    """Started without a broker, unless a test asks for one."""
    if not getattr(request, "param", False):
        fleet.broker.stop()
    running = Up(fleet)
    yield running
    if running.process.poll() is None:
        running.process.kill()
        running.process.wait()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_told_to_stop_it_takes_its_broker_along(fleet: Fleet, up: Up, number: signal.Signals) -> None:
    assert fleet.broker.running()
    assert up.stop(number) == 0, up.log.read_text()
    assert not fleet.broker.running()


@pytest.mark.parametrize("up", [True], indirect=True)
def test_broker_that_was_there_before_stays(fleet: Fleet, up: Up) -> None:
    assert up.stop(signal.SIGINT) == 0
    assert fleet.broker.running()
    down = fleet.command("down")
    assert (down.returncode, down.stdout) == (0, "stopped\n")
    assert fleet.command("down").stdout == "was not running\n"


def test_metrics_have_the_turn_and_the_books(fleet: Fleet, up: Up, recording: Path) -> None:
    fleet.run(fleet.recorded(recording))
    (url,) = re.findall(r"http://127\.0\.0\.1:\d+/metrics", up.log.read_text())

    def page() -> str:
        with urllib.request.urlopen(url) as answer:
            return str(answer.read().decode())

    turns = 'runturn_turns_total{agent="scripted",launcher="local",outcome="completed"} 1.0'
    until(lambda: turns in page(), "the turn, which is counted after it was settled")
    assert 'runturn_tokens_total{agent="scripted",model="claude-sonnet-4-5",type="output"} 230.0' in page()


def _server(fleet: Fleet) -> int:
    """Return the pid of the broker's server."""
    with redis.Redis(unix_socket_path=str(fleet.broker.socket)) as client:
        return int(client.info("server")["process_id"])


@pytest.mark.parametrize("sent", [False, True], ids=["in its queue", "on its way to the worker"])
def test_killed_broker_is_started_anew_and_a_queued_turn_goes_on(
    fleet: Fleet, up: Up, recording: Path, sent: bool
) -> None:
    first, app = _server(fleet), create_app(fleet.broker.url)
    request = fleet.recorded(recording)
    document = request.model_dump(mode="json", exclude_defaults=True) | {"agent": request.agent}
    with redis.Redis(unix_socket_path=str(fleet.broker.socket)) as client:

        def asked() -> bool:
            return bool(client.info("clients")["blocked_clients"])

        until(asked, "the worker to ask for a message")
        up.process.send_signal(signal.SIGSTOP)
        if not sent:
            until(lambda: not asked(), "the worker's last request to be answered")
        app.send_task(TASK, args=[document], task_id=request.turn_id)  # a frozen worker cannot have recorded it
        os.kill(first, signal.SIGKILL)
    up.process.send_signal(signal.SIGCONT)
    until(lambda: fleet.broker.running() and _server(fleet) != first, "another broker")
    until(lambda: fleet.ledger.reports.starting_with(request.turn_id, 1), "the turn to be known")
    result = fleet.result(request.turn_id)
    assert (result.status, result.attempts) == (Status.COMPLETED, 1)
    assert "the embedded broker has died" in up.log.read_text()
    assert up.stop(signal.SIGTERM) == 0, up.log.read_text()
    assert not fleet.broker.running()


def test_broker_that_was_there_before_is_started_anew_too_and_down_stops_it_for_good(fleet: Fleet, up: Up) -> None:
    first = _server(fleet)
    os.kill(first, signal.SIGKILL)
    until(lambda: fleet.broker.running() and _server(fleet) != first, "another broker")
    assert fleet.command("down").stdout == "stopped\n"
    seen = up.log.read_text().count("has died")
    until(lambda: "Connection" in up.log.read_text() or not fleet.broker.running(), "the worker to notice")
    assert up.stop(signal.SIGTERM) == 0, up.log.read_text()
    assert up.log.read_text().count("has died") == seen == 1
    assert not fleet.broker.running()


def test_broker_that_cannot_start_again_is_told_and_tried_more_and_more_rarely(fleet: Fleet, up: Up) -> None:
    first = _server(fleet)
    aof = next((fleet.state.broker / "appendonlydir").glob("*.manifest"))
    aof.write_text("nonsense")  # it will not start on this
    os.kill(first, signal.SIGKILL)
    until(lambda: up.log.read_text().count("could not be started") >= 3, "three tries")
    tries = [json.loads(line) for line in up.log.read_text().splitlines() if "could not be started" in line]
    assert [each["next_try_s"] for each in tries[:3]] == [1.0, 2.0, 4.0]
    assert "valkey.log" in tries[0]["error"]
    assert up.stop(signal.SIGTERM) == 0, up.log.read_text()


def test_down_leaves_another_ones_broker_alone(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNTURN_BROKER_URL", "redis://127.0.0.1:1/0")
    said = cli("down")
    assert (said.status, said.out) == (2, "")
    assert "stop that one where it runs" in said.err
