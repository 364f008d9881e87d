"""Jump hosts: each is connected to once, and carries all connections that lead through it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

from asyncssh import SSHClientConnection

from remote.ssh.connection import Connection


class JumpHosts:
    """The jump hosts in use, by how to get there."""

    def __init__(self) -> None:
        self._jump_hosts: dict[str, JumpHost] = {}

    def enter(self, jump: str, connect: Callable[[], Coroutine[Any, Any, SSHClientConnection]]) -> JumpHost:
        """The gateway of this specification, connected to unless it is; leave it after use."""
        gateway = self._jump_hosts.get(jump)
        if gateway is None or gateway.connection.over:
            gateway = self._jump_hosts[jump] = JumpHost(Connection(jump, connect()))
        gateway.enter()
        return gateway


class JumpHost:
    """A jump host's connection, which ends with its last user."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._users = 0
        self._leaving: set[asyncio.Task[None]] = set()

    def enter(self) -> None:
        """One more user."""
        self._users += 1

    def leave(self) -> None:
        """One user less."""
        self._users -= 1
        if not self._users:
            self.connection.close()

    def leave_after(self, connection: SSHClientConnection) -> None:
        """Leave when this connection has ended, which goes through here."""
        task = asyncio.create_task(self._leave_after(connection))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def _leave_after(self, connection: SSHClientConnection) -> None:
        try:
            with contextlib.suppress(OSError):  # of an ssh-agent that went away
                await connection.wait_closed()
        finally:
            self.leave()
