"""The path of messages that RabbitMQ dead-lettered into the ledger.

Each dead-letter queue has its own connection and thread. After a crash, RabbitMQ may leave a queue without a
leader: it then answers no subscription to it, and closes the connection a minute later. Turns must not wait for
that.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Self

import structlog
from celery import Celery
from kombu import Connection, Consumer, Message, Queue

from workers.brokers.settings import (
    OTHERWISE_DECLARED,
    dead_queue,
    declared_otherwise,
    queue_names,
    speaks_amqp,
)
from workers.worker.dead_letters import DeadLetters, fail_task, given_up

_PREFETCH = 10
_LOOK_S = 0.5  # how often to check for shutdown
_RETRY_S = 5.0
_HEARTBEAT_S = 30.0

log = structlog.get_logger(__name__)


class DeadQueues:
    """Empties an application's dead-letter queues. Use as a context manager; does nothing on Redis."""

    def __init__(self, app: Celery, dead_letters: DeadLetters) -> None:
        names = queue_names(app) if speaks_amqp(app.conf.broker_url) else []
        self._leaving = threading.Event()
        drains = [_Drain(app, dead_queue(name), dead_letters, self._leaving) for name in names]
        self._threads = [threading.Thread(target=each.run, name=each.name, daemon=True) for each in drains]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leaving.set()
        until = time.monotonic() + 2 * _LOOK_S  # for all of them together: the worker has to leave in time
        for thread in self._threads:
            thread.join(timeout=max(0.0, until - time.monotonic()))


class _Drain:
    """Moves the messages of one dead-letter queue into the ledger, one at a time."""

    def __init__(self, app: Celery, queue: Queue, dead_letters: DeadLetters, leaving: threading.Event) -> None:
        self.name = queue.name
        self._app = app
        self._queue = queue
        self._dead_letters = dead_letters
        self._leaving = leaving
        self._reported = ""  # since it was last read

    def run(self) -> None:
        """Drain the queue until told to leave, whatever happens."""
        while not self._leaving.is_set():
            connection = self._app.connection_for_read(heartbeat=_HEARTBEAT_S)
            try:
                self._drain(connection)
            except Exception as error:  # transports raise the errors of their client libraries
                why = OTHERWISE_DECLARED if declared_otherwise(error) else repr(error)
                if why != self._reported:
                    log.warning("a dead-letter queue cannot be read; trying again", queue=self.name, error=why)
                    self._reported = why
                self._leaving.wait(_RETRY_S)
            finally:
                connection.collect()

    def _drain(self, connection: Connection) -> None:
        channel = connection.channel()
        Consumer(channel, [self._queue], on_message=self._receive, prefetch_count=_PREFETCH).consume()
        self._reported = ""
        while not self._leaving.is_set():
            try:
                connection.drain_events(timeout=_LOOK_S)
            except TimeoutError:
                connection.heartbeat_check()

    def _receive(self, message: Message) -> None:
        if self._kept(message):
            message.ack()

    def _kept(self, message: Message) -> bool:
        """Move a message into the ledger; return False if it must stay in its queue, which holds up no other."""
        try:
            reason = given_up(message)
            if not self._dead_letters.keep(message, reason):
                return False
            fail_task(self._app, message, reason)
        except Exception:  # our own fault
            log.exception("a dead letter could not be read", queue=self.name)
            return False
        return True
