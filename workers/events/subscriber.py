"""The live events of all turns, over one connection, for any number of those who wait in one process.

One subscription to everything, not one a turn: a Redis compares every message with every subscription, and kombu's
Redis transport never gives one up before its connection is closed. What nobody here waits for is dropped unread.
"""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator

import orjson
import structlog
from kombu import Connection, Consumer, Message, Queue
from kombu.utils.uuid import uuid

from workers.brokers.settings import events_exchange, unlist
from workers.events.bus import Batch, routing_key

_ALL = routing_key("#")
_DRAIN_S = 1.0  # how long the end may take
_RETRY_S = 1.0

Take = Callable[[Batch], None]

log = structlog.get_logger(__name__)


class Subscriber:
    """Hands every batch to those who listen to its turn, in a thread of its own.

    While the broker is away, there are none: who needs every event reads the ledger (see `workers.events.follow`).
    """

    def __init__(self, broker_url: str) -> None:
        self._url = broker_url
        self._queue = Queue(
            uuid(), events_exchange(broker_url), _ALL, exclusive=True, auto_delete=True, durable=False
        )
        self._listeners: defaultdict[str, list[Take]] = defaultdict(list)  # by routing key
        self._mutex = threading.Lock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    @contextlib.contextmanager
    def listening(self, turn_id: str, take: Take) -> Iterator[None]:
        """Have `take` called with the turn's batches, in the feed's thread, which the first one starts."""
        key = routing_key(turn_id)
        with self._mutex:
            self._listeners[key].append(take)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="events-feed", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._mutex:
                self._listeners[key].remove(take)
                if not self._listeners[key]:
                    del self._listeners[key]

    def close(self) -> None:
        """Stop; returns when the thread has ended."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout=2 * _DRAIN_S)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._receive()
            except Exception as error:  # transports raise what their servers' clients raise
                log.warning("live events are interrupted", error=repr(error))
                self._stopping.wait(_RETRY_S)

    def _receive(self) -> None:
        with Connection(self._url, connect_timeout=5) as connection:
            consumer = Consumer(connection.channel(), [self._queue], on_message=self._hand_out, no_ack=True)
            consumer.consume()
            unlist(consumer, self._url)
            while not self._stopping.is_set():
                with contextlib.suppress(TimeoutError):
                    connection.drain_events(timeout=_DRAIN_S)

    def _hand_out(self, message: Message) -> None:
        with self._mutex:
            takers = tuple(self._listeners.get(message.delivery_info["routing_key"], ()))
        if takers:
            body = orjson.loads(message.body)
            batch = Batch(body["turn_id"], body["first_seq"], body["events"])
            for take in takers:
                take(batch)
