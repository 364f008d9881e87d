"""One connection to a host, and the shells that run over it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import asyncssh
from asyncssh import SSHClientConnection
from asyncssh.constants import OPEN_REQUEST_SESSION_FAILED

from remote.errors import HostUnreachable
from remote.ssh.channel import SshChannel, open_shell
from remote.ssh.connection import Connection

MAX_CHANNELS = 8  # of the 10 that sshd allows by default (MaxSessions)
_OPEN_S = 30.0  # for a channel on an open connection; one that takes longer is dead

log = logging.getLogger(__name__)

_T = TypeVar("_T")


class ConnectionFull(Exception):
    """The host allows no further channel on this connection."""


class MultiplexedConnection:
    """A connection with room for several channels. Calls `changed` when it opens, loses a user, or ends."""

    def __init__(
        self, host: str, making: Coroutine[Any, Any, SSHClientConnection], changed: Callable[[], None]
    ) -> None:
        self.users = 0  # channels that are wanted, open, or not yet released by the host
        self.stuck = 0  # of these, closed ones that the host does not release
        self.retired = False  # takes no further channels
        self.proven = False  # the host has opened a channel on it
        self.changed = changed
        self.connection = Connection(host, making)
        self._host = host
        self._limit = MAX_CHANNELS
        self._tasks: set[asyncio.Task[Any]] = set()  # a loop keeps only weak references
        self._watching = self._run(self._watch())

    @property
    def has_room(self) -> bool:
        """Return True if another channel may be opened, now or once the connection is open."""
        return not self.retired and not self.connection.over and self.users < self._limit

    @property
    def idle(self) -> bool:
        """Return True if no channel is in use."""
        return self.users == self.stuck

    async def open_shell(self) -> SshChannel:
        """Start a shell. Raise ConnectionFull, or the HostError of a failed connect."""
        slot = _Slot(self)
        try:
            connection = await self.connection.made()
        except BaseException:
            slot.free()
            raise
        opening = self._run(self._open(connection, slot))
        try:
            await asyncio.wait([opening], timeout=_OPEN_S)
        except asyncio.CancelledError:
            self._run(_discard(opening, slot))
            raise
        if not opening.done():
            slot.stick()
            self._run(_discard(opening, slot))
            raise HostUnreachable(self._host, f"it opened no channel within {_OPEN_S:g} s")
        try:
            return opening.result()
        except Exception as error:  # not only asyncssh's: it fails in other ways if the connection ends just then
            slot.free()
            raise self._refusal(error) from error

    def retire(self) -> None:
        """Take no further channels: the host does not release a closed one, and counts it."""
        if not self.retired:
            message = "host %s does not release a closed channel: further channels will use another connection"
            log.info(message, self._host, extra={"host": self._host})
        self.retired = True

    async def close(self) -> None:
        """Close the connection and all its channels."""
        self.retired = True
        self.connection.close()
        await asyncio.wait([self._watching])

    async def _open(self, connection: SSHClientConnection, slot: _Slot) -> SshChannel:
        try:
            return await open_shell(connection, self._host, slot)
        except asyncssh.ChannelOpenError as error:
            if error.code == OPEN_REQUEST_SESSION_FAILED:
                raise
        # A channel closed just before this request still counted; by now it does not.
        # If the connection has ended instead, that shows after a moment.
        await asyncio.sleep(0)
        return await open_shell(connection, self._host, slot)

    def _refusal(self, error: Exception) -> Exception:
        """Return the error for a channel that was not opened."""
        if not isinstance(error, asyncssh.ChannelOpenError) or self.connection.over:
            self.retired = True
            return HostUnreachable(self._host, f"the connection ended: {error}")
        if error.code == OPEN_REQUEST_SESSION_FAILED:
            return HostUnreachable(self._host, "it cannot start a shell; see its sshd's log")
        if not self.proven or not self.users:
            return HostUnreachable(
                self._host, f"it refuses to open a channel: {error.reason}; see MaxSessions in its sshd_config"
            )
        self._limit = self.users
        return ConnectionFull()

    async def _watch(self) -> None:
        """Report when the connection is open, and when it is over."""
        with contextlib.suppress(Exception):  # those waiting for it receive the error
            await self.connection.made()
            self.changed()
        await self.connection.ended()
        self.retired = True
        self.changed()

    def _run(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


class _Slot:
    """A `remote.ssh.channel.Slot` that counts the users of its connection."""

    def __init__(self, link: MultiplexedConnection) -> None:
        self._link = link
        self._stuck = False
        self._freed = False
        link.users += 1

    def opened(self) -> None:
        self._link.proven = True

    def free(self) -> None:
        if not self._freed:
            self._freed = True
            self._link.users -= 1
            self._link.stuck -= self._stuck
            self._link.changed()

    def stick(self) -> None:
        if not self._freed and not self._stuck:
            self._stuck = True
            self._link.stuck += 1
            self._link.retire()
            self._link.changed()


async def _discard(opening: asyncio.Task[SshChannel], slot: _Slot) -> None:
    """Close a channel that opens after its caller has left."""
    try:
        channel = await opening
    except Exception:
        slot.free()
    else:
        await channel.close()
