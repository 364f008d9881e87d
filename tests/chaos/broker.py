"""The brokers that are struck, and what is left in them."""

from __future__ import annotations

import os
import signal
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol, Self

import psutil
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.waiting import until
from workers.embedded import EmbeddedBroker

_RESULTS = b"celery-task-meta-"
_BINDINGS = b"_kombu.binding."  # where to put messages: a table, and no message


class Broker(Protocol):
    """A server that keeps messages over its restarts."""

    url: str
    result_url: str  # where results are kept

    def kill(self) -> None:
        """As when the power fails."""

    def stop(self) -> None:
        """As an operator does."""

    def start(self) -> None:
        """Again, with the same messages. It answers on return."""

    def drop_connections(self) -> None:
        """Close all of them; who was connected may come back at once."""

    def messages(self) -> dict[str, int]:
        """How many messages are where, those that are in a worker's hand included; places without any left out."""


class Valkey(AbstractContextManager["Valkey"]):
    """The embedded one, which is a real Valkey; it keeps the results, too."""

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
            keys = [key for key in client.scan_iter() if not key.startswith((_RESULTS, _BINDINGS))]
            sizes = {key.decode(): self._size(client, key) for key in keys}
        if "unacked" in sizes:
            sizes.pop("unacked_index", None)  # which names the same messages
        return {key: size for key, size in sizes.items() if size}

    def _size(self, client: redis.Redis, key: bytes) -> int:
        sizes = {b"list": client.llen, b"hash": client.hlen, b"zset": client.zcard, b"set": client.scard}
        kind = client.type(key)
        if kind == b"none":
            return 0
        return int(sizes[kind](key)) if kind in sizes else 1

    def _client(self) -> redis.Redis:
        path = str(self._server.socket)
        return redis.Redis(unix_socket_path=path, socket_timeout=10, retry=Retry(NoBackoff(), 0))

    @staticmethod
    def _await_end(pid: int) -> None:
        until(
            lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE,
            "the end of the broker",
        )
