"""One RabbitMQ for all tests of a process, and a virtual host of it for each of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.brokers.rabbitmq import RabbitMQ, Vhost


@pytest.fixture(scope="session")
def rabbitmq() -> Iterator[RabbitMQ]:
    """The server. Who stops it starts it again."""
    with RabbitMQ() as server:
        yield server


@pytest.fixture
def vhost(rabbitmq: RabbitMQ) -> Vhost:
    """An empty virtual host."""
    return rabbitmq.new_vhost()
