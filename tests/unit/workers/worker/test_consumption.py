"""A worker says while it receives no turns, and is back soon after its broker, however long that was away."""

from __future__ import annotations

from itertools import count, pairwise
from types import SimpleNamespace

import pytest
from kombu import Connection
from kombu.utils import functional

from workers.worker.consumer import TurnConsumer
from workers.worker.consumption import Consumption


def test_worker_says_how_long_it_has_received_no_turns() -> None:
    now = 100.0
    consumption = Consumption(lambda: now)
    now = 103.0
    assert consumption.problem() == "not subscribed to its queues for 3 s; retrying"
    assert consumption.begin() == 3.0
    assert consumption.problem() is None
    consumption.interrupt()
    now = 104.0
    consumption.interrupt()
    assert consumption.problem() == "not subscribed to its queues for 1 s; retrying"
    assert (consumption.begin(), consumption.begin()) == (1.0, 0.0)


def test_broker_that_was_away_for_hours_is_tried_every_three_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(functional, "sleep", slept.append)
    slept_before: list[float] = []  # at each attempt
    attempts = count()

    class Away(Connection):  # type: ignore[misc]  # kombu has no types
        def _connection_factory(self) -> object:
            slept_before.append(sum(slept))
            if next(attempts) < 3000:
                raise ConnectionRefusedError
            return object()

    connection = Away("amqp://nobody")
    assert TurnConsumer.ensure_connected(SimpleNamespace(), connection) is connection
    pauses = [after - before for before, after in pairwise(slept_before)]
    assert pauses[:4] == [1.0, 2.0, 3.0, 3.0]
    assert max(pauses) == 3.0
