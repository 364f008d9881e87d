"""One asyncssh connection, from the start of its handshake to its end."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Coroutine
from typing import Any

from asyncssh import SSHClientConnection

from remote.errors import HostUnreachable


class Connection:
    """A connection that is opening, open or closed. Many callers may wait for it; none can cancel it."""

    def __init__(self, host: str, making: Coroutine[Any, Any, SSHClientConnection]) -> None:
        self._host = host
        # In an empty context: log lines of a shared connection belong to no single turn.
        self._making = asyncio.create_task(making, context=contextvars.Context())
        self._making.add_done_callback(_failed)  # retrieves the exception, even without a waiter
        self._closed = False

    @property
    def stands(self) -> bool:
        """Return True while it is open."""
        return self._made is not None and not self.over

    @property
    def over(self) -> bool:
        """Return True once it has failed or ended."""
        if self._closed:
            return True
        return self._making.done() and (self._made is None or self._made.is_closed())

    async def made(self) -> SSHClientConnection:
        """Return the connection once it is open. Raise whatever opening raised, or HostUnreachable if closed."""
        await asyncio.wait([self._making])
        if self._closed or self._making.cancelled():
            raise HostUnreachable(self._host, "the connection was closed by us")
        return self._making.result()

    def close(self) -> None:
        """Close it. May be repeated."""
        self._closed = True
        self._making.cancel()
        self._making.add_done_callback(_close)  # the cancel may come too late, or be ignored

    async def ended(self) -> None:
        """Wait until it has failed or ended."""
        await asyncio.wait([self._making])
        if self._made is not None:
            with contextlib.suppress(OSError):  # from an ssh-agent that exited
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
