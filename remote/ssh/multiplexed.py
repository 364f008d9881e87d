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
_OPEN_S = 30.0  # for a channel on a connection that stands; one that takes longer is dead

log = logging.getLogger(__name__)

_T = TypeVar("_T")


class ConnectionFull(Exception):
    """The host allows no further channel on this connection."""


class MultiplexedConnection:
    """A connection with room for some channels. `changed` is called when it stands, loses a user, or is over."""

    def __init__(
        self, host: str, making: Coroutine[Any, Any, SSHClientConnection], changed: Callable[[], None]
    ) -> None:
        self.users = 0  # channels that are wanted, open, or not let go by the host yet
        self.stuck = 0  # of these, closed ones that the host does not let go
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
        """Whether another channel may be opened, now or when the connection stands."""
        return not self.retired and not self.connection.over and self.users < self._limit

    @property
    def idle(self) -> bool:
        """Whether nobody uses it."""
        return self.users == self.stuck

    async def open_shell(self) -> SshChannel:
        """Start a shell. Raises LinkFull, and HostError as the making of the connection did."""
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
        except Exception as error:  # not only asyncssh's: it stumbles when a connection ends in the very moment
            slot.free()
            raise self._refusal(error) from error

    def retire(self) -> None:
        """Take no further channels: the host does not let go of one that was closed, and counts it."""
        if not self.retired:
            message = "host %s does not let go of a closed channel: another connection takes the next ones"
            log.info(message, self._host, extra={"host": self._host})
        self.retired = True

    async def close(self) -> None:
        """End the connection with all its channels."""
        self.retired = True
        self.connection.close()
        await asyncio.wait([self._watching])

    async def _open(self, connection: SSHClientConnection, slot: _Slot) -> SshChannel:
        try:
            return await open_shell(connection, self._host, slot)
        except asyncssh.ChannelOpenError as error:
            if error.code == OPEN_REQUEST_SESSION_FAILED:
                raise
        # A channel that was closed just before this one was asked for still counted; by now it does not.
        # If it is the connection that has ended, a moment makes that known.
        await asyncio.sleep(0)
        return await open_shell(connection, self._host, slot)

    def _refusal(self, error: Exception) -> Exception:
        """What it means that a channel was not opened."""
        if not isinstance(error, asyncssh.ChannelOpenError) or self.connection.over:
            self.retired = True
            return HostUnreachable(self._host, f"the connection ended: {error}")
        if error.code == OPEN_REQUEST_SESSION_FAILED:
            return HostUnreachable(self._host, "it cannot start a shell; see the log of its sshd")
        if not self.proven or not self.users:
            return HostUnreachable(self._host, f"it opens no channel: {error.reason}; see MaxSessions of its sshd")
        self._limit = self.users
        return ConnectionFull()

    async def _watch(self) -> None:
        """Tell when the connection stands, and when it is over."""
        with contextlib.suppress(Exception):  # those who wait for it are told
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
    """See `remote.ssh.channel.Slot`."""

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
    """Close a channel that comes when nobody wants it any more."""
    try:
        channel = await opening
    except Exception:
        slot.free()
    else:
        await channel.close()
