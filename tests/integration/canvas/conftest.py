"""Fleets on each broker, and another application that sends them canvases."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ops.settings.state_dir import StateDir
from tests.integration.canvas.company import Company
from tests.integration.conftest import recording
from tests.support.brokers.fixtures import rabbitmq, vhost
from tests.support.fleets.fleet import Fleet
from tests.support.fleets.rabbit_fleet import RabbitFleet
from workers.brokers.embedded import EmbeddedBroker

__all__ = ["rabbitmq", "recording", "vhost"]


BROKERS = ("valkey", "rabbitmq")


@contextmanager
def fleet_on(broker: str, root: Path, request: pytest.FixtureRequest, **settings: str) -> Iterator[Fleet]:
    """A fleet on one of the brokers; a Valkey keeps the results."""
    if broker == "valkey":
        with Fleet(root, **settings) as fleet:
            yield fleet
        return
    results = EmbeddedBroker(StateDir.open(root / "state").broker).url
    vhost = request.getfixturevalue("rabbitmq").new_vhost()
    with RabbitFleet(root, vhost, result_url=results, **settings) as fleet:
        fleet.broker.ensure()
        try:
            yield fleet
        finally:
            for worker in fleet.workers:
                worker.kill()  # before its results are gone
            fleet.broker.stop()


@pytest.fixture(params=BROKERS)
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fleet]:
    """A fleet on each of the brokers."""
    with fleet_on(request.param, tmp_path, request) as fleet:
        yield fleet


@pytest.fixture(scope="module", params=BROKERS)
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A fleet on each of the brokers, with one worker for all tests of a module."""
    with fleet_on(request.param, tmp_path_factory.mktemp(request.param), request) as fleet:
        fleet.start_worker()
        yield fleet


@pytest.fixture
def company(fleet: Fleet) -> Company:
    company = Company(fleet)
    company.declare()
    return company
