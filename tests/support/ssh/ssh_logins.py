"""Accounts on a real sshd as hosts of a fleet: what their turns replay, and what is left of them there."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adapters.protocol.request import TurnRequest
from remote.ssh.connector import Connector
from remote.ssh.host import SshHost
from remote.ssh.host_keys import HostKeyPolicy, HostKeys
from remote.ssh.target import Target
from tests.support.fleets.fleet import Fleet
from tests.support.processes import look
from tests.support.ssh.accounts import Account, account, own_account
from tests.support.ssh.sshd import Sshd
from tests.support.waiting import lines_of, until

# Counts itself, uses its tools, and plays what it is given act by act: each waits for its cue.
_ACTOR = """#!/bin/sh
echo "$RUNTURN_SPOOL" >>{folder}/starts
for play; do :; done
if [ -e "$play/tools" ]; then . "$play/tools"; fi
for act in "$play"/act.*; do
    until [ -e "$play/cue.${{act##*.}}" ]; do sleep 0.1; done
    cat "$act"
done
"""

# A tool shell in a session of its own, as agents start them, that no gentle signal ends.
STUBBORN_TOOL = """
setsid sh -c 'trap "" HUP INT TERM; while :; do sleep 1; done' stubborn &
"""


@dataclass(frozen=True, slots=True)
class Login:
    """One account on an sshd, and a folder of its own there."""

    sshd: Sshd
    account: Account
    name: str  # of the host, for requests
    folder: Path

    def setting(self, **fields: Any) -> dict[str, Any]:
        """The host as `ssh_hosts` has it; its agent `scripted` is an actor."""
        return {
            "name": self.name,
            "address": self.sshd.host,
            "port": self.sshd.port,
            "user": self.account.name,
            "identity": str(self.sshd.client_key),
            "spool_dir": str(self.spools),
            "agents": {"scripted": str(self.program("actor", _ACTOR.format(folder=self.folder)))},
            **fields,
        }

    @property
    def spools(self) -> Path:
        """Where its turns are."""
        return self.folder / "spools"

    def host(self) -> SshHost:
        """The host itself, for who needs no fleet. Its connections belong to one loop."""
        own = self.account.name
        target = Target(self.name, self.sshd.host, own, self.sshd.port, identity=self.sshd.client_key)
        keys = HostKeys(self.sshd.known_hosts, policy=HostKeyPolicy.STRICT)
        return SshHost(target, Connector([target], keys, config_file=Path(os.devnull)))

    def request(self, fleet: Fleet, prompt: str = "do it", **fields: Any) -> TurnRequest:
        """A request for a turn here."""
        workspace = self._owned(self.folder / "workspace")
        return fleet.request(prompt, host=self.name, workspace=str(workspace), **fields)

    def play(self, name: str, *acts: Sequence[str], tools: str = "") -> Play:
        """Write a play; its first act needs no cue. `tools` is what the actor runs before it, in sh."""
        folder = self._owned(self.folder / name)
        for number, lines in enumerate(acts, 1):
            self._write(folder / f"act.{number}", "".join(f"{line}\n" for line in lines))
        if tools:
            self._write(folder / "tools", tools)
        play = Play(folder)
        play.cue(1)
        return play

    def program(self, name: str, text: str) -> Path:
        """Write a program that the account can run."""
        self._owned(self.folder)
        path = self._write(self.folder / name, text)
        path.chmod(0o755)
        return path

    def printed(self, spool_id: str) -> int:
        """How many bytes an agent has printed so far."""
        with contextlib.suppress(FileNotFoundError):
            return (self.spools / spool_id / "events").stat().st_size
        return 0

    def witness(self, spool_id: str) -> Witness:
        """Somebody who knows when what was noted in a spool, even after that was removed."""
        folder = self._owned(self.folder / f"witness-{spool_id}")
        for name in ("heartbeat", "reason", "end"):
            os.link(self.spools / spool_id / name, folder / name)
        return Witness(folder)

    @property
    def starts(self) -> list[str]:
        """The spools of all agents that were started, by the order of their starts."""
        return [Path(line).name for line in lines_of(self.folder / "starts")]

    def left(self) -> dict[int, str]:
        """All processes of turns here: agents, whatever these started, and the shells around them."""
        mark = f"{self.spools}/"
        return {
            each.pid: each.command.replace("\0", " ")[:100]
            for each in look()
            if mark in each.command or f"RUNTURN_SPOOL={mark}" in each.variables
        }

    def come_first(self) -> None:
        """Let those run before anything else: out there, a host does not share its machine with tests."""
        for pid in self.left():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.setpriority(os.PRIO_PROCESS, pid, -15)

    def gone_at(self) -> float:
        """When the last of them had ended."""
        until(lambda: not self.left(), f"the end of {self.left()}")
        return time.time()

    def clean_up(self) -> None:
        """Kill those."""
        for pid in self.left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _owned(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        os.chown(folder, self.account.uid, self.account.gid)
        return folder

    def _write(self, path: Path, text: str) -> Path:
        path.write_text(text)
        os.chown(path, self.account.uid, self.account.gid)
        return path


@dataclass(frozen=True, slots=True)
class Play:
    """A recording in acts."""

    folder: Path

    def cue(self, *acts: int) -> None:
        """Let these acts begin."""
        for act in acts:
            (self.folder / f"cue.{act}").touch()

    def size(self, acts: int) -> int:
        """How many bytes so many acts are."""
        return sum((self.folder / f"act.{number}").stat().st_size for number in range(1, acts + 1))

    @property
    def options(self) -> dict[str, str]:
        """What a request for the agent `scripted` has to say."""
        return {"recording": str(self.folder)}


@dataclass(frozen=True, slots=True)
class Witness:
    """State files of a spool."""

    folder: Path

    def words(self, name: str) -> list[str]:
        """What a file says; nothing as long as there is nothing to say."""
        return (self.folder / name).read_text().split()

    def at(self, name: str) -> float:
        """When a file was written last, by the clock of the host."""
        return (self.folder / name).stat().st_mtime


@contextmanager
def logins(sshd: Sshd, folder: Path, shell: str = "dash") -> Iterator[list[Login]]:
    """The account that runs the tests, and, if that is root, an unprivileged one with this login shell."""
    with contextlib.ExitStack() as stack:
        own = own_account()
        found = [Login(sshd, own, f"of-{own.name}", folder / "own")]
        if own.uid == 0:
            other = stack.enter_context(account(shell))
            found.append(Login(sshd, other, "of-somebody", other.home / "turns"))
        try:
            yield found
        finally:
            for login in found:
                login.clean_up()


@contextmanager
def ssh_fleet(root: Path, hosts: Sequence[Login], **settings: str) -> Iterator[Fleet]:
    """A fleet whose turns run at these logins; without a worker yet."""
    described = json.dumps([login.setting() for login in hosts])
    with Fleet(root, ssh_hosts=described, **settings) as fleet:
        yield fleet
