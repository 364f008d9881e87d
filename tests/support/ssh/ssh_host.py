"""Hosts that have an sshd to themselves, and what runs on them: counted there, not by what a worker believes."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from tests.support.needs import need
from tests.support.processes import look
from tests.support.ssh.accounts import own_account
from tests.support.ssh.links import Link
from tests.support.ssh.ssh_logins import Login
from tests.support.ssh.sshd import Sshd
from tests.support.waiting import until


@contextmanager
def ssh_host(name: str, root: Path, link: Link | None = None) -> Iterator[Login]:
    """A host of its own, with the limits that OpenSSH comes with; it is logged in to by whoever runs the tests."""
    need("sshd")
    with Sshd(link=link) as sshd:
        login = Login(sshd, own_account(), name, root / name)
        try:
            yield login
        finally:
            login.clean_up()


def ssh_hosts(*settings: dict[str, Any]) -> str:
    """RUNTURN_SSH_HOSTS."""
    return json.dumps(settings)


def channels(sshd: Sshd) -> int:
    """How many channels a server has open: each runs one shell."""
    return sum(len(_run_by_client(pid)) for pid in sshd.sessions())


def started_over(sshd: Sshd) -> list[str]:
    """Everything that was started over a server and still runs, whatever has become of the connection."""
    mark = re.compile(rf"\0SSH_CONNECTION=[^\0]* {re.escape(sshd.host)} {sshd.port}\0")
    return [str(each) for each in look() if mark.search(f"\0{each.variables}")]


def assert_nothing_left(login: Login) -> None:
    """No process of any turn or of its followers is left, and no spool."""
    until(lambda: not started_over(login.sshd), f"the end of {started_over(login.sshd)}")
    until(lambda: not login.spools.exists() or not any(login.spools.iterdir()), "the spools to be removed")


class Gate:
    """Where programs wait until a test lets them all go on."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.wait = f": <'{path}'"  # in sh; a pipe can be opened as soon as it has a writer
        self._path = path
        self._writer: int | None = None

    def open(self) -> None:
        """Let them go on, and whoever comes later."""
        self._writer = os.open(self._path, os.O_RDWR)  # which waits for nobody

    def close(self) -> None:
        """Let nobody through any more."""
        if self._writer is not None:
            os.close(self._writer)
            self._writer = None


def _run_by_client(session: int) -> list[psutil.Process]:
    """What runs below sshd's process of one connection, and below its unprivileged half if there is one."""
    with contextlib.suppress(psutil.NoSuchProcess):
        below = psutil.Process(session).children(recursive=True)
        halves = [session, *(child.pid for child in below if child.name().startswith("sshd"))]
        return [child for child in below if child.pid not in halves and child.ppid() in halves]
    return []
