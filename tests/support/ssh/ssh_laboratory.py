"""A worker's side of SSH: what the tests of hosts over SSH share."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from asyncssh import SSHClientConnection

from remote.host import Channel
from remote.shell import frame
from remote.ssh.connector import Connector
from remote.ssh.host import SshHost
from remote.ssh.host_keys import HostKeys
from remote.ssh.target import Target
from tests.support.ssh.accounts import own_account
from tests.support.ssh.laboratory import eventually
from tests.support.ssh.sshd import Sshd


class SshLab:
    """Known hosts and an ssh_config in a folder of its own, and nothing of the user who runs the tests."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.known_hosts = folder / "known_hosts"
        self.config = folder / "ssh_config"
        self.config.touch()

    def target(self, sshd: Sshd, **changes: Any) -> Target:
        """A server as a target for which ssh_config has nothing to say."""
        return replace(Target("box", sshd.host, own_account().name, sshd.port, sshd.client_key), **changes)

    def connector(self, *targets: Target, timeout_s: float = 60.0) -> CountingConnector:
        return CountingConnector(targets, HostKeys(self.known_hosts), config_file=self.config, timeout_s=timeout_s)

    @asynccontextmanager
    async def pool(
        self, target: Target, *others: Target, timeout_s: float = 60.0, **options: Any
    ) -> AsyncIterator[SshHost]:
        """A pool for a target; the others are configured, too."""
        connector = self.connector(target, *others, timeout_s=timeout_s)
        async with opened(SshHost(target, connector, **options)) as pool:
            yield pool


class CountingConnector(Connector):
    """A connector that counts."""

    tries = 0
    at_once = 0
    most_at_once = 0

    async def connect(self, target: Target) -> SSHClientConnection:
        self.tries += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            return await super().connect(target)
        finally:
            self.at_once -= 1


@asynccontextmanager
async def opened(pool: SshHost) -> AsyncIterator[SshHost]:
    """Close the pool in the end."""
    try:
        yield pool
    finally:
        await pool.close()


async def connected(sshd: Sshd, pool: SshHost, number: int) -> None:
    """See that both ends count so many connections; the kernel, asked amid changes, may count some twice."""
    assert pool.connections == number
    await eventually(lambda: sshd.connections() == number, sshd.connections)


async def run(channel: Channel, script: str) -> bytes:
    """Have the shell run a script; return what it prints until it ends."""
    await channel.write(frame(script.encode()))
    return await rest(channel)


async def rest(channel: Channel) -> bytes:
    """All that a channel still brings."""
    output = bytearray()
    while chunk := await channel.read():
        output += chunk
    return bytes(output)


async def line(channel: Channel) -> str:
    """The next line, when nothing comes behind it."""
    output = b""
    while not output.endswith(b"\n"):
        chunk = await channel.read()
        assert chunk, f"the channel ended after {output!r}"
        output += chunk
    return output.decode().strip()


async def nap() -> None:
    """Let everything go on that can."""
    for _ in range(20):
        await asyncio.sleep(0)


def loop_complaints(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """For a fixture: fail when the event loop complains, as it does about errors that nobody looked at.

    It also mentions those who write to a socket that was just lost, as asyncssh does until it is told; and, from
    Python 3.12 on in other words, processes whose end asyncssh has seen first.
    """
    gc.freeze()  # only what the test leaves is looked at: to look at everything takes longer than most tests
    yield
    gc.collect()
    records = caplog.get_records("call") + caplog.get_records("teardown")
    complaints = [record.getMessage() for record in records if record.name == "asyncio"]
    harmless = ("Unknown child process", "child process", "socket.send() raised exception")
    assert [each for each in complaints if not each.startswith(harmless)] == []
