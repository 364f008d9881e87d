"""The broker, the ledger, and both are away under load, and turns last longer than every timeout of a broker."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from adapters.protocol.result import Status
from tests.support.brokers.rabbitmq import RabbitMQ
from tests.support.fleets.fleet import Fleet, slow_recording
from tests.support.fleets.impatient import IMPATIENT, TIMEOUT_S
from tests.support.fleets.rabbit_fleet import RabbitFleet
from tests.support.needs import need
from tests.support.ssh.links import need_links
from tests.support.waiting import until
from tests.tools.chaos.blows.targets import outages
from tests.tools.chaos.broker import BROKERS
from tests.tools.chaos.form import SHORT
from tests.tools.chaos.performance import perform
from tests.tools.chaos.report import show
from workers.app import QUEUE, create_app
from workers.brokers.settings import dead_queue
from workers.client.publish import send

SEED = 20261122
OUTAGE_S = float(os.environ.get("OUTAGE_S", "3"))
FORM = replace(
    SHORT,
    turns=12 + round(3 * OUTAGE_S),
    real=round(OUTAGE_S / 15),  # real agents meet broken brokers in `test_chaos` as well
    odd=0,
    calm_s=2.0,
    storm_s=3 * (OUTAGE_S + 2.0),
    longest_s=5.0 + OUTAGE_S / 2,
    ledger_away_s=OUTAGE_S,
)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("broker", list(BROKERS))
def test_workers_come_back_by_themselves_and_nothing_is_lost(tmp_path: Path, broker: str) -> None:
    need("sshd")
    need_links()
    report = perform(FORM, tmp_path, broker, BROKERS[broker], SEED, outages)
    show([report], Console(width=120))
    assert report.faults == []
    assert report.workers == 2, "none had to be started again"


@pytest.fixture(scope="module")
def impatient() -> Iterator[RabbitMQ]:
    """It waits for acknowledgements for `TIMEOUT_S`."""
    with RabbitMQ(consumer_timeout_s=TIMEOUT_S) as server:
        yield server


@pytest.fixture(params=list(BROKERS))
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fleet]:
    """A fleet whose broker waits for acknowledgements for `TIMEOUT_S`; for Valkey, its workers see to that."""
    if request.param == "valkey":
        with Fleet(tmp_path) as fleet:
            yield fleet
    else:
        with RabbitFleet(tmp_path, request.getfixturevalue("impatient").new_vhost()) as fleet:
            yield fleet


@pytest.mark.timeout(300)
def test_turn_longer_than_every_timeout_of_its_broker_runs_once(
    fleet: Fleet, tmp_path: Path, recording: Path
) -> None:
    slow = slow_recording(tmp_path / "slow.jsonl", recording, 1500)  # seven pauses: five times the timeout
    workers = [fleet.start_worker(prefix=(sys.executable, "-c", IMPATIENT)) for _ in range(2)]
    turn_id = fleet.client.enqueue(fleet.recorded(slow))
    until(lambda: fleet.ledger.reports.result(turn_id), "the turn to be settled")
    assert fleet.result(turn_id).status is Status.COMPLETED
    assert fleet.result(turn_id).attempts == 1
    names = [event["event"] for event in fleet.events(turn_id)]
    assert [names.count(name) for name in ("attempt_started", "session_started", "turn_settled")] == [1, 1, 1]
    assert fleet.run(fleet.recorded(recording)).status is Status.COMPLETED
    assert [worker.process.poll() for worker in workers] == [None, None]
    fleet.assert_nothing_left()


def test_message_held_beyond_the_consumer_timeout_does_not_end_the_worker(
    impatient: RabbitMQ, tmp_path: Path, recording: Path
) -> None:
    with RabbitFleet(tmp_path, impatient.new_vhost()) as fleet:
        worker = fleet.start_worker()
        request = fleet.recorded(recording)
        with closing(sqlite3.connect(fleet.state.ledger_url.removeprefix("sqlite:///"))) as other:
            other.execute("BEGIN IMMEDIATE")  # the ledger takes nothing, so the message stays unacknowledged
            send(create_app(fleet.vhost.url), [request])
            until(lambda: b"PRECONDITION_FAILED" in worker.log.read_bytes(), "RabbitMQ to lose patience")
            other.rollback()
        until(lambda: fleet.ledger.reports.result(request.turn_id), "the turn to be settled")
        names = [event["event"] for event in fleet.events(request.turn_id)]
        assert names.count("session_started") == names.count("attempt_started") == 1
        assert worker.process.poll() is None, worker.log.read_text()
        until(lambda: not fleet.vhost.messages(QUEUE), "the message to be acked")
        assert not fleet.vhost.messages(dead_queue(QUEUE).name)
