"""One RabbitMQ for all tests of a run, and a virtual host of it for each of them."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.brokers.node import Node, Vhost
from tests.support.brokers.rabbitmq import RabbitMQ
from tests.support.shared import run_pipe, shared


@pytest.fixture(scope="session")
def rabbitmq() -> Node:
    """The server. Others use it as well: who stops one has it to itself."""
    folder, port, distribution = shared("rabbitmq", _start)
    return Node(Path(folder), port, distribution)


@pytest.fixture
def vhost(rabbitmq: Node) -> Vhost:
    """An empty virtual host."""
    return rabbitmq.new_vhost()


def _start(place: Path) -> tuple[str, int, int]:
    place.mkdir(exist_ok=True)
    with ExitStack() as stack:
        server = stack.enter_context(RabbitMQ(place, pipe=run_pipe()))
        stack.pop_all()  # it stays
    return str(place), server.port, server.distribution
