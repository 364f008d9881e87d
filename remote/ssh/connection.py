"""One connection of asyncssh's, from the start of its handshake to its end."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Coroutine
from typing import Any

from asyncssh import SSHClientConnection

from remote.errors import HostUnreachable


class Connection:
    """A connection that is being made, stands, or is over. Many may wait for it; none of them can break it off."""

    def __init__(self, host: str, making: Coroutine[Any, Any, SSHClientConnection]) -> None:
        self._host = host
        # In a context of its own: what it logs, and asyncssh over the years, is about no single turn.
        self._making = asyncio.create_task(making, context=contextvars.Context())
        self._making.add_done_callback(_failed)  # looked at, even if nobody waits
        self._closed = False

    @property
    def stands(self) -> bool:
        """Whether it was made, and lives."""
        return self._made is not None and not self.over

    @property
    def over(self) -> bool:
        """Whether it failed, or has ended."""
        if self._closed:
            return True
        return self._making.done() and (self._made is None or self._made.is_closed())

    async def made(self) -> SSHClientConnection:
        """Return it once it was made. Raises what its making raised, and HostUnreachable when it was closed."""
        await asyncio.wait([self._making])
        if self._closed or self._making.cancelled():
            raise HostUnreachable(self._host, "the connection was closed by us")
        return self._making.result()

    def close(self) -> None:
        """End it. May be repeated."""
        self._closed = True
        self._making.cancel()
        self._making.add_done_callback(_close)  # which may come too late, or be overheard

    async def ended(self) -> None:
        """Wait until it has failed or ended."""
        await asyncio.wait([self._making])
        if self._made is not None:
            with contextlib.suppress(OSError):  # of an ssh-agent that went away
                await self._made.wait_closed()

    @property
    def _made(self) -> SSHClientConnection | None:
        if not self._making.done() or _failed(self._making):
            return None
        return self._making.result()


def _failed(made: asyncio.Task[SSHClientConnection]) -> bool:
    return made.cancelled() or made.exception() is not None


def _close(made: asyncio.Task[SSHClientConnection]) -> None:
    if not _failed(made):
        made.result().close()
