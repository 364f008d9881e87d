"""A shell on a host over SSH: one channel of a connection."""

from __future__ import annotations

import asyncio
from typing import Protocol

from asyncssh import SSHClientChannel, SSHClientConnection, SSHClientSession
from asyncssh.constants import EXTENDED_DATA_STDERR

from remote.errors import HostUnreachable
from remote.host import READ_BYTES
from remote.shell import BOOT

_WINDOW_BYTES = 2 * 2**20  # that the host may send before we read
_PAUSE_BYTES = 2**20  # unread here, beyond which we grant no further window
_WRITE_BYTES = 2**18  # per write to the connection
_CLOSE_S = 2.0  # a shell exits within milliseconds after its input ends


class Slot(Protocol):
    """A channel's place on its connection."""

    def opened(self) -> None:
        """Record that the host has opened the channel."""

    def free(self) -> None:
        """Record that the host has released the channel. May be repeated."""

    def stick(self) -> None:
        """Record that the host does not release the closed channel."""


async def open_shell(connection: SSHClientConnection, host: str, slot: Slot) -> SshChannel:
    """Start the shell. Raise whatever asyncssh raises."""
    channel, session = await connection.create_session(
        lambda: _Session(slot), BOOT, encoding=None, window=_WINDOW_BYTES
    )
    assert isinstance(session, _Session)  # noqa: S101 - created two lines above
    return SshChannel(host, channel, session, slot)


class SshChannel:
    """A `remote.host.Channel` over SSH."""

    def __init__(self, host: str, channel: SSHClientChannel[bytes], session: _Session, slot: Slot) -> None:
        self._host = host
        self._channel = channel
        self._session = session
        self._slot = slot
        self._ending: asyncio.Task[None] | None = None

    async def write(self, data: bytes) -> None:
        """Send all of `data`. Raise HostUnreachable if the channel has ended."""
        for start in range(0, len(data), _WRITE_BYTES):
            await self._session.writable.wait()
            try:
                self._channel.write(data[start : start + _WRITE_BYTES])
            except OSError as error:
                raise HostUnreachable(self._host, "the channel has ended") from error
        await self._session.writable.wait()
        if self._session.over:
            raise HostUnreachable(self._host, "the channel has ended")

    async def read(self) -> bytes:
        """Return the next bytes, or b"" once the channel has ended or was closed."""
        return await self._session.read()

    async def close(self) -> None:
        """End the shell's input; after two seconds, close the channel."""
        if self._ending is None:
            self._ending = asyncio.create_task(self._end())  # continues if the caller is cancelled
        await asyncio.wait([self._ending])

    async def _end(self) -> None:
        self._session.close()
        if not self._channel.is_closing():
            self._channel.write_eof()
        if not await self._session.finishes_within(_CLOSE_S):
            self._channel.abort()
            if not await self._session.finishes_within(_CLOSE_S):
                self._slot.stick()


class _Session(SSHClientSession[bytes]):
    """Data from asyncssh, kept until it is read."""

    def __init__(self, slot: Slot) -> None:
        self.over = False  # the host sends no more, or we have closed the channel
        self.writable = asyncio.Event()
        self.writable.set()
        self._slot = slot
        self._finished = asyncio.Event()  # the channel is closed on both sides
        self._channel: SSHClientChannel[bytes] | None = None
        self._unread = bytearray()
        self._readable = asyncio.Event()  # there are bytes, or there will be no more
        self._closed = False
        self._paused = False

    async def read(self) -> bytes:
        while not self._unread and not self.over:
            self._readable.clear()
            await self._readable.wait()
        taken = bytes(self._unread[:READ_BYTES])
        del self._unread[:READ_BYTES]
        if len(self._unread) < _PAUSE_BYTES // 2:
            self._resume()
        return taken

    def close(self) -> None:
        """Discard all unread and future data."""
        self._closed = True
        self._unread.clear()
        self._end()
        self._resume()

    async def finishes_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._finished.wait()
        except TimeoutError:
            return False
        return True

    def connection_made(self, chan: SSHClientChannel[bytes]) -> None:
        self._channel = chan
        self._slot.opened()

    def data_received(self, data: bytes, datatype: int | None) -> None:
        if self._closed or datatype == EXTENDED_DATA_STDERR:  # start-up files may complain there
            return
        self._unread += data
        self._readable.set()
        if len(self._unread) > _PAUSE_BYTES and not self._paused and self._channel is not None:
            self._paused = True
            self._channel.pause_reading()

    def eof_received(self) -> bool:
        self._end()
        return True  # we close our side ourselves

    def connection_lost(self, exc: Exception | None) -> None:
        self._paused = False  # the channel must no longer be resumed: asyncssh would fail
        self._end()
        self._finished.set()
        self._slot.free()

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def _end(self) -> None:
        """Wake all readers and writers."""
        self.over = True
        self._readable.set()
        self.writable.set()

    def _resume(self) -> None:
        if self._paused and self._channel is not None:
            self._paused = False
            self._channel.resume_reading()
