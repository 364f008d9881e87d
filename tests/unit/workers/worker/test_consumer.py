"""Celery's consumer as runturn has it."""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import Mock

import pytest
from celery.worker.consumer import Consumer

from workers.worker import consumer
from workers.worker.consumer import TurnConsumer


class Hub:
    """Notes what is to be called later."""

    def __init__(self) -> None:
        self.later: list[Callable[[], None]] = []

    def call_later(self, delay_s: float, call: Callable[[], None]) -> None:
        self.later.append(call)


class Dispatcher:
    """Counts how often events are sent."""

    def __init__(self) -> None:
        self.sent = 0

    def flush(self) -> None:
        self.sent += 1


@pytest.fixture
def monitored() -> TurnConsumer:
    made = TurnConsumer.__new__(TurnConsumer)
    made.hub, made.event_dispatcher = Hub(), Dispatcher()
    return made


def test_connection_for_events_that_cannot_be_collected_keeps_no_worker_from_reconnecting(
    monitored: TurnConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Exception] = []
    monkeypatch.setattr(Consumer, "on_connection_error_after_connected", lambda _, exc: seen.append(exc))
    monitored.event_dispatcher.connection = Mock(collect=Mock(side_effect=OSError))
    monitored.on_connection_error_after_connected(ConnectionResetError())
    assert [type(each) for each in seen] == [ConnectionResetError]


def test_events_of_a_tenth_of_a_second_are_sent_together(
    monitored: TurnConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(consumer.time, "monotonic", lambda: now[0])
    for now[0] in (100.0, 100.05, 100.09):
        monitored.on_send_event_buffered()
    assert len(monitored.hub.later) == 1
    monitored.hub.later.pop()()
    assert monitored.event_dispatcher.sent == 1
    now[0] = 100.2  # Celery's loop may have forgotten what was to be called, as it began anew
    monitored.on_send_event_buffered()
    assert len(monitored.hub.later) == 1


@pytest.mark.parametrize("waiting", [True, False])
def test_consumer_that_leaves_sends_events_that_wait_and_otherwise_asks_nothing_of_the_broker(
    monitored: TurnConsumer, monkeypatch: pytest.MonkeyPatch, waiting: bool
) -> None:
    monkeypatch.setattr(Consumer, "shutdown", lambda _: None)
    if waiting:
        monitored.on_send_event_buffered()
    monitored.shutdown()
    assert monitored.event_dispatcher.sent == waiting


def test_events_of_a_consumer_that_is_not_connected_wait(monitored: TurnConsumer) -> None:
    monitored.event_dispatcher = None
    monitored.on_send_event_buffered()
    monitored.hub.later.pop()()
