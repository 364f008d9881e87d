"""Redis transport that loses no message between its queue and a worker.

kombu pops a message and records it as unacknowledged afterwards; a worker killed in between loses it. Here the
message moves to a list of its consumer (BLMOVE, in one step), and from there to the unacknowledged ones (a script,
in one step). Consumers regularly report that they are alive. If one stays silent for the visibility timeout, any
other gives back what it had in transit. If it was only asleep, the message is delivered twice: that its list is
empty does not prove another copy, since the server may have been killed before it wrote the message to disk.

kombu records the unacknowledged messages of all applications of a database under the same keys, and each gives all
of them back after its own visibility timeout. Ours is short, so we use our own keys.

Times are the server's. Messages that Celery sends with a priority are in separate lists, from which consumers take
one at a time, within a second: the ledger decides what is urgent. Needs Redis 6.2 or Valkey.
"""

from __future__ import annotations

import base64
import contextlib
import time
from collections.abc import Sequence
from queue import Empty
from typing import Any, Final
from uuid import uuid4

import structlog
from kombu import transport as kombu_transport
from kombu.transport import redis as kombu_redis
from kombu.utils.encoding import bytes_to_str

from workers.brokers import redis_scripts
from workers.brokers.settings import connection_errors
from workers.brokers.shared_keys import recover_shared_keys

ALIVE: Final = (
    "runturn.transit"  # sorted set: lists of messages in transit, by when their consumers were last alive
)
UNACKED: Final = "runturn.unacked"  # hash: messages by tag
UNACKED_INDEX: Final = "runturn.unacked_index"  # sorted set: their tags, by when they were last held
_UNACKED_MUTEX: Final = "runturn.unacked_mutex"
_WAIT_S = 1.0  # how long the server lets a consumer wait for a message
_REPLY_EXPIRES_S = 60  # longer than any command waits for replies to remote control
_UNREADABLE = "application/x-unreadable"

log = structlog.get_logger(__name__)


class QoS(kombu_redis.QoS):  # type: ignore[misc]  # kombu has no types
    """Messages that a channel has delivered and that are not acknowledged yet."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._looked_at = 0.0  # on the monotonic clock
        # Twice: what a worker killed just before held counts as abandoned only after the visibility timeout.
        self._recover_at = [0.0, time.monotonic() + 1.5 * self.visibility_timeout]

    def append(self, message: Any, delivery_tag: str) -> None:
        """Record a message that is being delivered."""
        noted = kombu_redis.dumps([self.channel.queue_of(message), message._raw])
        with self.channel.conn_or_acquire() as client:
            keys = (self.channel.in_transit or "", self.unacked_index_key, self.unacked_key)
            client.eval(redis_scripts.NOTE, len(keys), *keys, delivery_tag, noted)
        kombu_redis.virtual.QoS.append(self, message, delivery_tag)

    def restore_by_tag(self, tag: str, client: Any = None, leftmost: bool = False) -> None:
        """Return an unacknowledged message to its queue, unless it was acknowledged in the meantime.

        kombu looks up the queue in between, and drops the message if that fails.
        """
        with self.channel.conn_or_acquire(client) as server:
            keys = (self.unacked_key, self.unacked_index_key)
            noted = server.hget(self.unacked_key, tag)
            if noted is None:
                server.eval(redis_scripts.FORGET, len(keys), *keys, tag)
                return
            queue, message = kombu_redis.loads(bytes_to_str(noted))
            message["properties"]["delivery_info"]["redelivered"] = True
            push = "LPUSH" if leftmost else "RPUSH"
            values = (tag, noted, kombu_redis.dumps(message), push)
            server.eval(redis_scripts.RETURN, len(keys) + 1, *keys, queue, *values)

    def restore_visible(self, start: int = 0, num: int | None = 10, interval: int = 10) -> None:
        """Refresh what this channel holds, and give back the messages of consumers silent for too long.

        kombu calls this every ten seconds, or after every second without a message. `interval` is ignored.
        """
        now = time.monotonic()
        if now - self._looked_at < self.visibility_timeout / 6:
            return
        self._looked_at = now
        with self.channel.conn_or_acquire() as client:
            held = [tag for tag in list(self._delivered) if tag not in self._dirty]
            if held:
                client.eval(redis_scripts.HOLD, 1, self.unacked_index_key, *held)
            self.channel.stay(client)
            if given := client.eval(redis_scripts.GIVE_BACK, 1, ALIVE, int(self.visibility_timeout)):
                log.warning("messages in transit to a lost worker were returned to their queue", messages=given)
            silent_since = client.time()[0] - self.visibility_timeout
            while self._recover_at and now >= self._recover_at[0]:
                del self._recover_at[0]
                recover_shared_keys(client, self.channel.acked_queues, silent_since)
            self._restore_silent(client, silent_since, start, num)

    def _restore_silent(self, client: Any, silent_since: float, start: int, num: int | None) -> None:
        """Give back unacknowledged messages last held before then, as kombu does by the time of this machine."""
        with (
            contextlib.suppress(kombu_redis.MutexHeld),
            kombu_redis.Mutex(client, self.unacked_mutex_key, self.unacked_mutex_expire),
        ):
            for tag in client.zrevrangebyscore(
                self.unacked_index_key, silent_since, 0, start=num and start, num=num
            ):
                self.restore_by_tag(tag, client)


class Channel(kombu_redis.Channel):  # type: ignore[misc]  # as above
    """A channel that receives messages over a list in which they outlive their consumer."""

    QoS = QoS
    unacked_key = UNACKED
    unacked_index_key = UNACKED_INDEX
    unacked_mutex_key = _UNACKED_MUTEX

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.in_transit: str | None = None  # the list of the message being received
        self._transit: str | None = None  # the list that we wait on
        self._pooled: Any = None  # a client of the pool
        self._arrived = False  # the server has answered the first of the two commands
        self.acked_queues: set[str] = set()  # consumed with acknowledgements
        super().__init__(*args, **kwargs)

    def stay(self, client: Any) -> None:
        """Report that we are alive if we have something in transit; a list that was given back stays so."""
        if self._transit is not None:
            client.eval(redis_scripts.STILL_HERE, 1, ALIVE, self._transit)

    def queue_of(self, message: Any) -> str:
        """Return the queue that a message being received was in."""
        if self.in_transit is not None:
            return self.in_transit.rpartition(" ")[0]
        delivery = message.delivery_info
        queues: list[str] = self._lookup(delivery["exchange"], delivery["routing_key"])
        return queues[0] if queues else str(delivery["routing_key"])

    def basic_consume(self, queue: str, no_ack: bool, *args: Any, **kwargs: Any) -> Any:
        """Consume from a queue."""
        if not no_ack:
            self.acked_queues.add(queue)
        return super().basic_consume(queue, no_ack, *args, **kwargs)

    def close(self) -> None:
        """Close the channel; give back what is in transit at once."""
        # The server may be about to move a message to our list: wait for its answer before leaving the list.
        while self._in_poll and self._transit is not None:
            try:
                self._brpop_read()
            except Empty:
                continue
            except connection_errors(self):
                break
        transit, self._transit = self._transit, None
        if transit is not None and not self._in_poll and not self.closed:
            self._leave(transit)
        super().close()

    def _put(self, queue: str, message: Any, **options: Any) -> None:
        """Store a message. A reply to remote control expires: its reader may have stopped waiting for it.

        Celery tells the broker when to delete such a queue, but Redis knows nothing of queues.
        """
        super()._put(queue, message, **options)
        if queue.endswith(".pidbox"):
            with self.conn_or_acquire() as client:
                client.expire(queue, _REPLY_EXPIRES_S)

    def _queue_bind(self, exchange: str, routing_key: str, pattern: str, queue: str) -> None:
        """Bind a queue; for a fanout, without recording it in the broker.

        Publishing does not read that list, and killed workers would stay on it forever.
        """
        if self.typeof(exchange).type == "fanout":
            self._fanout_queues[queue] = exchange, routing_key.replace("#", "*")
        else:
            super()._queue_bind(exchange, routing_key, pattern, queue)

    def _refresh_bindings(self, queues: Sequence[str]) -> None:
        """Record bindings again before they expire, as kombu 5.7 does, but without those of a fanout."""
        super()._refresh_bindings([queue for queue in queues if queue not in self._fanout_queues])

    def _create_client(self, asynchronous: bool = False) -> Any:
        """Return a client of the server. Raises ConnectionError after the connection was closed.

        kombu would raise AttributeError, which ends a worker that acknowledges an earlier message. It also creates
        a client for each command, which takes longer than the command; clients of one pool do not differ.
        """
        if self.connection is None or self.connection.client is None:
            raise ConnectionError("the connection is closed")
        if asynchronous:
            return super()._create_client(asynchronous)
        if self._pooled is None or self._pooled.connection_pool is not self.pool:
            self._pooled = super()._create_client()
        return self._pooled

    def _on_connection_disconnect(self, connection: Any) -> None:
        """Wait on a new list next time: a message may have arrived in the old one."""
        if self._in_poll is connection:
            self._transit = None
        super()._on_connection_disconnect(connection)

    def _brpop_start(self, timeout: float | None = None) -> None:
        """Request the next message without waiting for it."""
        active = set(self.active_queues)
        if len(active) != 1 or not active <= self.acked_queues:
            self._transit = None
            super()._brpop_start(timeout)
            return
        (queue,) = active
        # After an error, the old list may contain a message: it is given back as if we were dead.
        self._transit = self._transit or f"{queue} {uuid4().hex}"
        connection = self._in_poll = self.client.connection
        self._brpop_sent_at = time.monotonic()  # kombu 5.7 drops a connection that is silent for too long
        self._arrived = False
        lists = [self._q_for_pri(queue, priority) for priority in self.priority_steps]
        keys = (ALIVE, *lists)
        arrive = ("EVAL", redis_scripts.ARRIVE, len(keys), *keys, self._transit)
        wait = ("BLMOVE", queue, self._transit, "RIGHT", "LEFT", timeout or _WAIT_S)
        connection.send_packed_command(connection.pack_commands([arrive, wait]))

    def _brpop_read(self, **options: Any) -> bool:
        """Read an answer, and deliver the message if there is one."""
        if self._transit is None:
            return bool(super()._brpop_read(**options))
        if not self._arrived:
            self._answer("EVAL")
            self._arrived = True
            if not self.client.connection.can_read(timeout=0):
                raise Empty  # and keep waiting
        item = self._answer("BLMOVE")
        self._in_poll = None
        if item is None:
            raise Empty
        # If anything fails from here on, the list is left as it is, and given back as if we were dead: 30 to 45 s
        # later.
        transit, self._transit = self._transit, None
        self._receive_from(transit, item)
        self._transit = transit
        return True

    def _receive_from(self, transit: str, item: bytes) -> None:
        queue = transit.rpartition(" ")[0]
        if queue not in self.connection._callbacks:  # its consumer has been cancelled
            self._leave(transit)
            raise Empty
        self.in_transit = transit
        try:
            self.connection._deliver(self._readable(item, queue), queue)
        finally:
            self.in_transit = None

    def _leave(self, transit: str) -> None:
        try:
            with self.conn_or_acquire() as client:
                client.eval(redis_scripts.LEAVE, 2, ALIVE, transit)
        except connection_errors(self):
            log.debug("the broker is down; messages in transit will be returned to their queue later")

    def _answer(self, command: str) -> Any:
        try:
            return self.client.parse_response(self.client.connection, command)
        except Exception:
            self.client.connection.disconnect()  # the next round reconnects
            raise

    def _readable(self, item: bytes, queue: str) -> dict[str, Any]:
        """Return a message that kombu can process; anything else becomes the body of one that nothing accepts."""
        try:
            message: dict[str, Any] = kombu_redis.loads(bytes_to_str(item))
            delivery = self.Message(message, channel=self).delivery_info
            if {"exchange", "routing_key"} <= delivery.keys():
                return message
        except Exception as error:  # anything may be wrong with it
            log.debug("not a message", error=repr(error))
        return {
            "body": base64.b64encode(item).decode(),
            "content-type": _UNREADABLE,
            "content-encoding": "binary",
            "headers": {},
            "properties": {
                "body_encoding": "base64",
                "delivery_tag": uuid4().hex,
                "delivery_info": {"exchange": "", "routing_key": queue},
            },
        }


class _Poller(kombu_redis.MultiChannelPoller):  # type: ignore[misc]  # as above
    """Waits for the messages of a connection's channels."""

    def maybe_restore_messages(self) -> None:
        """Have each channel report what it holds: kombu asks one only, and another's would be redelivered."""
        for channel in list(self._channels):
            if channel.active_queues:
                channel.qos.restore_visible(num=channel.unacked_restore_limit)


class Transport(kombu_redis.Transport):  # type: ignore[misc]  # as above
    """kombu's Redis transport with the channel above."""

    Channel = Channel

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.cycle = _Poller()


def install() -> None:
    """Make all Redis connections of this process use it, for workers and Flower. Safe to call twice."""
    for scheme in ("redis", "rediss"):
        kombu_transport.TRANSPORT_ALIASES[scheme] = f"{__name__}:Transport"
        kombu_transport._transport_cache.pop(scheme, None)
