"""The broker, the ledger, and both are away under load, and turns last longer than every timeout of a broker."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from adapters.result import Status
from tests.brokers.rabbitmq import RabbitMQ
from tests.chaos.broker import BROKERS
from tests.chaos.form import SHORT
from tests.chaos.performance import perform
from tests.chaos.report import show
from tests.chaos.storm import outages
from tests.needs import need
from tests.ssh.links import need_links
from tests.waiting import until
from tests.workers.fleet import Fleet, slow_recording
from tests.workers.impatient import IMPATIENT, TIMEOUT_S
from tests.workers.rabbit_fleet import RabbitFleet

SEED = 20261122
OUTAGE_S = float(os.environ.get("OUTAGE_S", "3"))
FORM = replace(
    SHORT,
    turns=12 + round(3 * OUTAGE_S),
    real=round(OUTAGE_S / 15),  # real agents meet broken brokers in `test_chaos` as well
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


@contextmanager
def impatient(broker: str, root: Path) -> Iterator[Fleet]:
    """A fleet whose broker waits for acknowledgements for `TIMEOUT_S`."""
    if broker == "valkey":
        with Fleet(root) as fleet:
            yield fleet
    else:
        with RabbitMQ(consumer_timeout_s=TIMEOUT_S) as server, RabbitFleet(root, server.new_vhost()) as fleet:
            yield fleet


@pytest.mark.timeout(300)
@pytest.mark.parametrize("broker", list(BROKERS))
def test_turn_longer_than_every_timeout_of_its_broker_runs_once(
    tmp_path: Path, recording: Path, broker: str
) -> None:
    slow = slow_recording(tmp_path / "slow.jsonl", recording, 1500)  # seven pauses: five times the timeout
    with impatient(broker, tmp_path) as fleet:
        workers = [fleet.start_worker(prefix=(sys.executable, "-c", IMPATIENT)) for _ in range(2)]
        turn_id = fleet.client.enqueue(fleet.recorded(slow))
        until(lambda: fleet.ledger.result(turn_id), "the turn to be settled")
        assert fleet.result(turn_id).status is Status.COMPLETED
        assert fleet.result(turn_id).attempts == 1
        names = [event["event"] for event in fleet.events(turn_id)]
        assert [names.count(name) for name in ("attempt_started", "session_started", "turn_settled")] == [1, 1, 1]
        assert fleet.run(fleet.recorded(recording)).status is Status.COMPLETED
        assert [worker.process.poll() for worker in workers] == [None, None]
        fleet.assert_nothing_left()
