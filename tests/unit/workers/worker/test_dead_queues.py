"""What drains RabbitMQ's dead-letter queues: a bad message holds up no other, and each fault has its name."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from amqp.exceptions import PreconditionFailed
from kombu import Connection, Message, Queue
from structlog.testing import capture_logs

from workers.brokers.settings import OTHERWISE_DECLARED
from workers.worker import dead_queues
from workers.worker.dead_letters import given_up
from workers.worker.dead_queues import _Drain


def _drain(leaving: threading.Event, connect: Callable[..., object], keep: Callable[..., bool]) -> _Drain:
    app: Any = SimpleNamespace(connection_for_read=connect)
    dead_letters: Any = SimpleNamespace(keep=keep)
    return _Drain(app, Queue("turns.dead"), dead_letters, leaving)


def test_message_that_cannot_be_kept_stays_and_holds_up_no_other() -> None:
    leaving = threading.Event()
    seen: list[Message] = []

    def keep(message: Message, reason: str) -> bool:
        seen.append(message)
        if message.payload == "bad":
            raise ZeroDivisionError
        leaving.set()
        return True

    with Connection("memory://") as other:
        producer = other.Producer()
        for body in ("bad", "good"):
            producer.publish(body, routing_key="turns.dead", declare=[Queue("turns.dead")])
        with capture_logs() as logs:
            _drain(leaving, lambda heartbeat: Connection("memory://"), keep).run()
        assert [entry["event"] for entry in logs] == ["a dead letter could not be read"]
        assert [(message.payload, message.acknowledged) for message in seen] == [("bad", False), ("good", True)]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (PreconditionFailed("inequivalent arg", (50, 10)), OTHERWISE_DECLARED),
        (PreconditionFailed("delivery acknowledgement timed out", (0, 0)), "acknowledgement timed out"),
        (ConnectionRefusedError("nobody listens"), "nobody listens"),
    ],
    ids=["declared otherwise", "not acknowledged in time", "refused"],
)
def test_fault_is_logged_once_by_its_name(error: Exception, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_queues, "_RETRY_S", 0.0)
    leaving, tries = threading.Event(), iter(range(3))

    def connect(heartbeat: float) -> object:
        if next(tries) == 2:
            leaving.set()
        return SimpleNamespace(channel=fail, collect=lambda: None)

    def fail() -> None:
        raise error

    with capture_logs() as logs:
        _drain(leaving, connect, lambda *_: True).run()
    (entry,) = logs
    assert words in entry["error"]


@pytest.mark.parametrize("reason", [["delivery_limit"], {"a": 1}, 5, None])
def test_odd_reason_of_a_dead_letter_is_shown_as_it_is(reason: object) -> None:
    message = Message(headers={"x-first-death-reason": reason})
    assert given_up(message) == f"RabbitMQ dead-lettered it: {reason}"
