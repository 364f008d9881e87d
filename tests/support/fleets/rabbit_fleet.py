"""A fleet whose broker is a RabbitMQ."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from tests.support.brokers.node import Vhost
from tests.support.fleets.fleet import Fleet
from workers.app import create_app
from workers.client.sync import Client


class RabbitFleet(Fleet):
    """A fleet on a virtual host; its embedded broker is not started."""

    def __init__(self, root: Path, vhost: Vhost, **settings: str) -> None:
        self.vhost = vhost
        super().__init__(root, broker_url=vhost.url, **settings)

    def __enter__(self) -> RabbitFleet:
        return self

    @cached_property
    def client(self) -> Client:
        return Client(create_app(self.vhost.url), self.ledger)
