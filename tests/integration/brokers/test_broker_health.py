"""A broker that is away is told of in its own words."""

from __future__ import annotations

import socket

import pytest
from kombu.exceptions import OperationalError

from workers.brokers import health
from workers.brokers.health import BrokerProbe


@pytest.mark.parametrize("scheme", ["redis", "amqp"])
def test_broker_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    monkeypatch.setattr(health, "_ANSWER_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        probe = BrokerProbe(f"{scheme}://127.0.0.1:{server.getsockname()[1]}/0")
        for _ in range(2):
            with pytest.raises(OperationalError, match=r"(?i)timed out|timeout"):
                probe.ask()
