"""Hosts for agents that try to break out, at each level of isolation.

Such an agent runs as the account that runs the tests, on its own machine, or as an unprivileged account over SSH.
Next to it, two turns run that must not notice.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from adapters.command import Command
from adapters.isolation import Isolation
from remote.containment import Containment
from remote.host import Channel
from remote.shell import frame
from remote.spool import Exit, Spool
from tests.support.ssh.accounts import Account, account, own_account
from tests.support.ssh.laboratory import Lab, eventually
from tests.support.ssh.ssh_logins import Login
from tests.support.ssh.sshd import Sshd

_NEIGHBOUR = """
echo "$NEIGHBOURS_SECRET" >"$1.secret"
: >"$1.ready"
until [ -e "$1.go" ]; do sleep 0.1; done
echo undisturbed
"""


@dataclass
class Place(Lab):
    """A host whose agents all run at one level."""

    account: Account = field(default_factory=own_account)
    login: Login | None = None  # None: this machine, without SSH

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.login:
            for each in (self.folder, self.workspace, self.home):
                self.give(each)

    @property
    def level(self) -> Isolation:
        assert self.containment.isolation is not None
        return self.containment.isolation

    @property
    def is_root(self) -> bool:
        return self.account.uid == 0

    def give(self, path: Path) -> Path:
        """Make a file or directory the agents' own."""
        os.chown(path, self.account.uid, self.account.gid)
        return path

    def write(self, path: Path, text: str) -> Path:
        """Write a file that only the agents' account may read."""
        path.parent.mkdir(exist_ok=True)
        self.give(path.parent).chmod(0o700)
        path.write_text(text)
        path.chmod(0o600)
        return self.give(path)

    def agent(self, spool: Spool) -> int:
        """The pid of the agent itself, as this machine counts."""
        process = psutil.Process(self.pid(spool, "agent"))
        for _ in range(0 if self.level is Isolation.NONE else 2):  # the wall, init, the agent
            process = process.children()[0]
        return process.pid

    def go(self) -> None:
        """Let the agent that waits for this go on."""
        (self.workspace / "go").touch()

    def pipe(self, name: str) -> Path:
        path = self.workspace / name
        os.mkfifo(path)
        return self.give(path)

    def sh(self, script: str, *args: str, **fields: Any) -> Command:
        """Return a command whose home is the laboratory's, over SSH, too."""
        env = {"HOME": str(self.home)} | dict(fields.pop("env", {}))
        return super().sh(script, *args, env=env, **fields)

    @asynccontextmanager
    async def neighbours(self, disturbed: bool = False) -> AsyncIterator[Neighbours]:
        """Have two turns run meanwhile; fail if they, or the host, have noticed anything else."""
        async with self._reached() as host:
            both = Neighbours(self, host)
            tasks = [asyncio.create_task(self.run(*turn, host=host)) for turn in both.turns()]
            try:
                await eventually(lambda: all(file.exists() for file in both.ready))
                yield both
                assert await _answers(await host.open_channel())
                both.let_go()
                ends = await asyncio.gather(*tasks)
            finally:
                for task in tasks:
                    task.cancel()
            if not disturbed:
                assert ends == [(b"undisturbed\n", Exit(0, "exit"))] * 2

    @asynccontextmanager
    async def _reached(self) -> AsyncIterator[Any]:
        host = self.login.host() if self.login else self.host
        try:
            yield host
        finally:
            await host.close()


class Neighbours:
    """Two turns of the same account, and the host that they share with the agent that is to be tried."""

    def __init__(self, place: Place, host: Any) -> None:
        self.host = host
        self.secret = secrets.token_hex(12)
        self.place = place
        self.spools: list[Spool] = [place.spool(), place.spool()]
        self.workspaces = [place.folder / f"neighbour{number}" for number in (1, 2)]
        for workspace in self.workspaces:
            workspace.mkdir()
            place.give(workspace)
        self.ready = [Path(f"{workspace}/turn.ready") for workspace in self.workspaces]

    def turns(self) -> Iterator[tuple[Command, Spool]]:
        for workspace, spool in zip(self.workspaces, self.spools, strict=True):
            yield self._command(workspace), spool

    def let_go(self) -> None:
        for workspace in self.workspaces:
            (workspace / "turn.go").touch()

    async def run(self, command: Command, spool: Spool | None = None, **options: Any) -> tuple[list[str], Exit]:
        """Run the agent that is to be tried; return the lines that it printed, and its end."""
        output, end = await self.place.run(command, spool, host=self.host, **options)
        return output.decode().splitlines(), end

    def follow(self, spool: Spool, command: Command, **options: Any) -> Any:
        return self.place.follow(spool, command, host=self.host, **options)

    def _command(self, workspace: Path) -> Command:
        env = {"NEIGHBOURS_SECRET": self.secret}
        prompt = f"{self.secret}\n".encode()
        return self.place.sh(_NEIGHBOUR, f"{workspace}/turn", cwd=str(workspace), stdin=prompt, env=env)


@contextmanager
def place_of(level: Isolation, sshd: Sshd | None, folder: Path) -> Iterator[Place]:
    """Yield the host: this machine, or, of an sshd, an unprivileged account."""
    containment = Containment(level)
    if sshd is None:
        place = Place(folder, "/usr/bin:/bin", containment=containment)
        try:
            yield place
        finally:
            place.clean_up()
        return
    with account("dash") as somebody:
        login = Login(sshd, somebody, "of-somebody", somebody.home / "lab")
        place = Place(login.folder, "/usr/bin:/bin", containment=containment, account=somebody, login=login)
        try:
            yield place
        finally:
            place.clean_up()


async def _answers(channel: Channel) -> bool:
    await channel.write(frame(b"echo still here"))
    output = b""
    while chunk := await channel.read():
        output += chunk
    await channel.close()
    return output == b"still here\n"
