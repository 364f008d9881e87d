"""The brokers under attack, and what is left in them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, Protocol, Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.support.brokers.rabbitmq import RabbitMQ
from tests.support.processes import gone_pid
from tests.support.waiting import until
from workers.brokers.embedded import EmbeddedBroker
from workers.brokers.redis_transport import ALIVE, UNACKED, UNACKED_INDEX

# Results, who is bound to what, a lock that expires, and who has a list of messages in transit: the lists count.
# What the result backend keeps expires. A chord's task that is told again when its body was sent is counted anew.
_RESULTS = (b"celery-task-meta-", b"celery-taskset-meta-")
_NO_MESSAGES = (*_RESULTS, b"_kombu.binding", b"runturn.unacked_mutex", ALIVE.encode())

# All keys with their sizes, in one step: a message that moves from one to another is missed otherwise.
_SIZES = """
local commands = {list = 'LLEN', hash = 'HLEN', zset = 'ZCARD', set = 'SCARD'}
local sizes = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
    local command = commands[redis.call('TYPE', key).ok]
    table.insert(sizes, {key, command and redis.call(command, key) or 1})
end
return sizes
"""


class Broker(Protocol):
    """A server that keeps messages across restarts."""

    url: str
    result_url: str  # where results are kept
    plain: dict[str, Any]  # what a producer that knows nothing but Celery has to configure

    def kill(self) -> None:
        """Kill it, as a power failure would."""

    def stop(self) -> None:
        """Stop it, as an operator would."""

    def start(self) -> None:
        """Start it again with the same messages; return once it answers."""

    def drop_connections(self) -> None:
        """Close all connections; clients may reconnect at once."""

    def messages(self) -> dict[str, int]:
        """Return the number of messages by place, including unacknowledged ones; omit empty places."""

    def listeners(self) -> list[str]:
        """Return where live events are delivered: each should disappear with its subscriber."""


class Valkey(AbstractContextManager["Valkey"]):
    """The embedded broker, a real Valkey, which also stores the results."""

    plain: dict[str, Any] = {}  # noqa: RUF012  # of all of them

    def __init__(self, directory: Path) -> None:
        self._server = EmbeddedBroker(directory)
        self.url = self.result_url = self._server.url

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def kill(self) -> None:
        with self._client() as client:
            pid = int(client.info("server")["process_id"])
        os.kill(pid, signal.SIGKILL)
        self._await_end(pid)

    def stop(self) -> None:
        if not self._server.running():
            return
        with self._client() as client:
            pid = int(client.info("server")["process_id"])
        self._server.stop()
        self._await_end(pid)

    def start(self) -> None:
        self._server.ensure()

    def drop_connections(self) -> None:
        with self._client() as client:
            client.client_kill_filter(_type="normal", skipme=True)

    def messages(self) -> dict[str, int]:
        with self._client() as client:
            found = client.eval(_SIZES, 0)
        sizes = {key.decode(): size for key, size in found if not key.startswith(_NO_MESSAGES)}
        if UNACKED in sizes:
            sizes.pop(UNACKED_INDEX, None)  # which names the same messages
        return sizes

    def listeners(self) -> list[str]:
        with self._client() as client:
            channels = [channel.decode() for channel in client.pubsub_channels() if b"runturn" in channel]
            return channels + ["a pattern"] * int(client.pubsub_numpat())

    def _client(self) -> redis.Redis:
        path = str(self._server.socket)
        return redis.Redis(unix_socket_path=path, socket_timeout=10, retry=Retry(NoBackoff(), 0))

    @staticmethod
    def _await_end(pid: int) -> None:
        until(lambda: gone_pid(pid), "the end of the broker")


class Rabbitmq(AbstractContextManager["Rabbitmq"]):
    """A separate RabbitMQ server. It cannot store results: a Valkey that is left alone does."""

    # A message is sent when it is on a disk.
    plain: dict[str, Any] = {"broker_transport_options": {"confirm_publish": True}}  # noqa: RUF012  # of all of them

    def __init__(self, directory: Path) -> None:
        self._server = RabbitMQ()
        self._results = Valkey(directory)
        self.result_url = self._results.url
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self._server)
            stack.enter_context(self._results)
            self._vhost = self._server.new_vhost()
            self._stack = stack.pop_all()
        self.url = self._vhost.url
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def kill(self) -> None:
        self._server.kill()

    def stop(self) -> None:
        self._server.stop()

    def start(self) -> None:
        self._server.start()

    def drop_connections(self) -> None:
        self._vhost.close_connections()

    def messages(self) -> dict[str, int]:
        held = {name: int(count) for name, (count,) in self._vhost.list_queues().items()}
        return {name: count for name, count in held.items() if count}

    def listeners(self) -> list[str]:
        return [name for name, (durable,) in self._vhost.list_queues("durable").items() if durable != "true"]


BROKERS: dict[str, Callable[[Path], AbstractContextManager[Broker]]] = {"valkey": Valkey, "rabbitmq": Rabbitmq}
