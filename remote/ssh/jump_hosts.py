"""Jump hosts: one connection to each carries all connections through it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

from asyncssh import SSHClientConnection

from remote.ssh.connection import Connection


class JumpHosts:
    """Jump hosts in use, by jump specification."""

    def __init__(self) -> None:
        self._jump_hosts: dict[str, JumpHost] = {}

    def enter(self, jump: str, connect: Callable[[], Coroutine[Any, Any, SSHClientConnection]]) -> JumpHost:
        """Return the jump host of this specification, connecting if necessary; leave it after use."""
        gateway = self._jump_hosts.get(jump)
        if gateway is None or gateway.connection.over:
            gateway = self._jump_hosts[jump] = JumpHost(Connection(jump, connect()))
        gateway.enter()
        return gateway


class JumpHost:
    """A jump host's connection, which closes with its last user."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._users = 0
        self._leaving: set[asyncio.Task[None]] = set()

    def enter(self) -> None:
        """Add a user."""
        self._users += 1

    def leave(self) -> None:
        """Remove a user."""
        self._users -= 1
        if not self._users:
            self.connection.close()

    def leave_after(self, connection: SSHClientConnection) -> None:
        """Leave once this connection, which goes through here, has ended."""
        task = asyncio.create_task(self._leave_after(connection))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def _leave_after(self, connection: SSHClientConnection) -> None:
        try:
            with contextlib.suppress(OSError):  # from an ssh-agent that exited
                await connection.wait_closed()
        finally:
            self.leave()
