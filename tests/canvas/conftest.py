"""Fleets on each broker, and another application that sends them canvases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ops.state_dir import StateDir
from tests.brokers.fixtures import rabbitmq, vhost
from tests.canvas.company import Company
from tests.workers.conftest import recording
from tests.workers.fleet import Fleet
from tests.workers.rabbit_fleet import RabbitFleet
from workers.embedded import EmbeddedBroker

__all__ = ["rabbitmq", "recording", "vhost"]


@pytest.fixture(params=["valkey", "rabbitmq"])
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fleet]:
    """A fleet on each of the brokers; a Valkey keeps the results."""
    if request.param == "valkey":
        with Fleet(tmp_path) as fleet:
            yield fleet
    else:
        results = EmbeddedBroker(StateDir.open(tmp_path / "state").broker)
        with RabbitFleet(tmp_path, request.getfixturevalue("vhost"), result_url=results.url) as fleet:
            fleet.broker.ensure()
            try:
                yield fleet
            finally:
                for worker in fleet.workers:
                    worker.kill()  # before its results are gone
                fleet.broker.stop()


@pytest.fixture
def company(fleet: Fleet) -> Company:
    company = Company(fleet)
    company.declare()
    return company
