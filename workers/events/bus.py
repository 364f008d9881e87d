"""Live events over the broker: one exchange, one routing key per turn.

A message is one JSON object, {"turn_id", "first_seq", "events": […]}, its events numbered from `first_seq`.
Nothing here is durable; readers that need every event get missing ones from the ledger (see `follow`).
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import structlog
from kombu import Connection, Consumer, Exchange, Message, Producer, Queue
from kombu.exceptions import OperationalError
from kombu.utils.uuid import uuid

from workers.brokers.settings import answer_deadlines, connection_errors, events_exchange, speaks_redis, unlist
from workers.events.fanout import RedisFanout
from workers.stopping import Told

_MOST_WAITING = 10_000  # batches, while the broker hangs
_MOST_AT_ONCE = 100  # per round trip to the broker
_SUBSCRIBE_S = 0.001
_ANSWER_S = 4.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Batch:
    """Some events of a turn, in order and without gaps."""

    turn_id: str
    first_seq: int
    events: list[dict[str, Any]]


def routing_key(turn_id: str) -> str:
    """Return the routing key of a turn's events. Dots would make it several words of a topic."""
    return f"turn.{turn_id.replace('.', '_')}"


class Publisher:
    """Publishes batches from any thread, over its own connection.

    While the broker is down, events are not published, but the ledger still gets them.
    """

    def __init__(self, broker_url: str) -> None:
        self._url = broker_url
        self._exchange = events_exchange(broker_url)
        self._queue: queue.Queue[tuple[str, bytes] | None] = queue.Queue(_MOST_WAITING)
        self._over = False
        self._thread = threading.Thread(target=self._run, name="events-publisher", daemon=True)
        self._thread.start()

    def publish(self, turn_id: str, first_seq: int, events: list[bytes]) -> None:
        """Queue JSON objects for sending; return at once."""
        body = b'{"turn_id":%b,"first_seq":%d,"events":[%b]}' % (
            orjson.dumps(turn_id),
            first_seq,
            b",".join(events),
        )
        with contextlib.suppress(queue.Full):  # the broker hangs; watchers read the ledger
            self._queue.put_nowait((routing_key(turn_id), body))

    def close(self) -> None:
        """Send what is queued, then stop."""
        with contextlib.suppress(queue.Full):
            self._queue.put(None, timeout=2)
        self._thread.join(timeout=2)

    def _run(self) -> None:
        connection = Connection(self._url, connect_timeout=5, transport_options=answer_deadlines(self._url))
        sender: RedisFanout | _Sender | None = None
        while waiting := self._next():
            try:
                sender = sender or self._sender(connection)
                sender.send(waiting)
            except Exception as error:  # transports raise the errors of their client libraries
                log.debug("events were not published", error=repr(error))
                sender = None  # the next batch reconnects
                with contextlib.suppress(Exception):
                    connection.close()
        connection.close()

    def _next(self) -> list[tuple[str, bytes]]:
        """Wait for a message, and return it with all that are queued; return nothing at the end."""
        waiting: list[tuple[str, bytes]] = []
        with contextlib.suppress(queue.Empty):
            while not self._over and len(waiting) < _MOST_AT_ONCE:
                item = self._queue.get(block=not waiting)
                if item is None:
                    self._over = True
                else:
                    waiting.append(item)
        return waiting

    def _sender(self, connection: Connection) -> RedisFanout | _Sender:
        kind = RedisFanout if speaks_redis(self._url) else _Sender
        return kind(connection, self._exchange)


class _Sender:
    """Sends with kombu's producer."""

    def __init__(self, connection: Connection, exchange: Exchange) -> None:
        self._producer = Producer(connection, exchange=exchange, auto_declare=True)

    def send(self, messages: Sequence[tuple[str, bytes]]) -> None:
        """Send JSON documents, each with its routing key. Raises the transport's errors."""
        for key, body in messages:
            self._producer.publish(
                body, routing_key=key, content_type="application/json", content_encoding="utf-8", retry=False
            )


class Subscription:
    """Receives one turn's messages from the moment it is entered; none while the broker is down.

    With `#` in place of a turn's id, it receives those of all turns. Belongs to one thread.
    """

    def __init__(self, broker_url: str, turn_id: str) -> None:
        self._url = broker_url
        self._queue = Queue(
            uuid(),
            exchange=events_exchange(broker_url),
            routing_key=routing_key(turn_id),
            exclusive=True,
            auto_delete=True,
            durable=False,
        )
        # A Redis that is frozen still accepts connections; for RabbitMQ, `connect_timeout` includes its greeting.
        limits = ("socket_timeout", "socket_connect_timeout") if speaks_redis(broker_url) else ()
        self._options = dict.fromkeys(limits, _ANSWER_S)
        self._connection: Connection | None = None  # None: not subscribed
        self._received: list[Message] = []
        broker = Connection(broker_url)
        self._faults = (OperationalError, OSError, *connection_errors(broker), *broker.channel_errors)

    def __enter__(self) -> Subscription:
        with contextlib.suppress(*self._faults):
            self._subscribed()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and issubclass(kind, KeyboardInterrupt | Told):
            self._abandon()
        else:
            self._close()

    def batches(self, timeout_s: float) -> list[Batch]:
        """Return what arrives within `timeout_s`; stop after the first arrivals."""
        try:
            return [read_batch(message) for message in self.messages(timeout_s)]
        except self._faults:
            time.sleep(timeout_s)
            return []

    def messages(self, timeout_s: float) -> list[Message]:
        """Return the same, undecoded. Raises the transport's errors; the next call reconnects."""
        try:
            connection = self._subscribed()
            with contextlib.suppress(TimeoutError):
                connection.drain_events(timeout=timeout_s)
        except Exception:
            self._close()
            raise
        received, self._received = self._received, []
        return received

    def _subscribed(self) -> Connection:
        if self._connection is None:
            options = {**answer_deadlines(self._url), **self._options}
            connection = Connection(self._url, connect_timeout=_ANSWER_S, transport_options=options)
            try:
                consumer = Consumer(connection.channel(), [self._queue], on_message=self._receive, no_ack=True)
                consumer.consume()
                unlist(consumer, self._url)  # at once: one that is killed while listed stays on the list
                with contextlib.suppress(TimeoutError):
                    connection.drain_events(timeout=_SUBSCRIBE_S)  # with Redis, this subscribes
            except Exception:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _abandon(self) -> None:
        """Drop the connection without closing it, as an interrupt may have caught it in any state.

        Interrupted between sending a request and noting that, kombu's Redis transport would wait forever for an
        answer when closed.
        """
        self._connection = None

    def _receive(self, message: Message) -> None:
        self._received.append(message)


def read_batch(message: Message) -> Batch:
    """Decode a message."""
    return Batch(**orjson.loads(message.body))
