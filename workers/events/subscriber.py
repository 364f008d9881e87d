"""The live events of all turns over one connection, for any number of listeners in one process.

One subscription to everything, not one per turn: Redis compares every message with every subscription, and kombu's
Redis transport keeps a subscription until its connection is closed. Events without a listener are dropped unread.
"""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator

import structlog
from kombu import Message

from workers.events.bus import Batch, Subscription, read_batch, routing_key

_DRAIN_S = 1.0  # how often to check whether to stop
_RETRY_S = 1.0

Take = Callable[[Batch], None]

log = structlog.get_logger(__name__)


class Subscriber:
    """Passes every batch to its turn's listeners, in a separate thread.

    While the broker is down, there are none: listeners that need every event read the ledger (see
    `workers.events.follow`).
    """

    def __init__(self, broker_url: str) -> None:
        self.subscribed = threading.Event()  # set while the broker passes events on
        self._url = broker_url
        self._listeners: defaultdict[str, list[Take]] = defaultdict(list)  # by routing key
        self._mutex = threading.Lock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    @contextlib.contextmanager
    def listening(self, turn_id: str, take: Take) -> Iterator[None]:
        """Call `take` with the turn's batches, in the subscriber's thread, which the first listener starts."""
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
        """Stop, and wait for the thread to end."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout=2 * _DRAIN_S)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._receive()
            except Exception as error:  # transports raise the errors of their client libraries
                log.warning("live events interrupted", error=repr(error))
                self._stopping.wait(_RETRY_S)

    def _receive(self) -> None:
        with Subscription(self._url, "#") as subscription:
            self.subscribed.set()
            try:
                while not self._stopping.is_set():
                    for message in subscription.messages(_DRAIN_S):
                        self._hand_out(message)
            finally:
                self.subscribed.clear()

    def _hand_out(self, message: Message) -> None:
        with self._mutex:
            takers = tuple(self._listeners.get(message.delivery_info["routing_key"], ()))
        if takers:
            batch = read_batch(message)
            for take in takers:
                take(batch)
