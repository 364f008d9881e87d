"""A shell on a host over SSH: the far end of one channel of a connection."""

from __future__ import annotations

import asyncio
from typing import Protocol

from asyncssh import SSHClientChannel, SSHClientConnection, SSHClientSession
from asyncssh.constants import EXTENDED_DATA_STDERR

from remote.errors import HostUnreachable
from remote.host import READ_BYTES
from remote.shell import BOOT

_WINDOW_BYTES = 2 * 2**20  # the host may send so much unread
_PAUSE_BYTES = 2**20  # unread here, and no further window is granted
_WRITE_BYTES = 2**18  # handed to the connection at once
_CLOSE_S = 2.0  # a shell whose input has ended leaves within milliseconds


class Slot(Protocol):
    """A channel's place on its connection."""

    def opened(self) -> None:
        """The host has opened the channel."""

    def free(self) -> None:
        """The host has let go of the channel. May be repeated."""

    def stick(self) -> None:
        """The host does not let go of the closed channel."""


async def open_shell(connection: SSHClientConnection, host: str, slot: Slot) -> SshChannel:
    """Start the shell. Raises what asyncssh does."""
    channel, session = await connection.create_session(
        lambda: _Session(slot), BOOT, encoding=None, window=_WINDOW_BYTES
    )
    assert isinstance(session, _Session)  # noqa: S101 - made two lines above
    return SshChannel(host, channel, session, slot)


class SshChannel:
    """See `remote.host.Channel`."""

    def __init__(self, host: str, channel: SSHClientChannel[bytes], session: _Session, slot: Slot) -> None:
        self._host = host
        self._channel = channel
        self._session = session
        self._slot = slot
        self._ending: asyncio.Task[None] | None = None

    async def write(self, data: bytes) -> None:
        """Send all of `data`. Raises HostUnreachable when the channel has ended."""
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
        """End the shell's input; after two seconds, the channel."""
        if self._ending is None:
            self._ending = asyncio.create_task(self._end())  # goes on when the one who waits here is cancelled
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
    """What asyncssh delivers, kept until it is read."""

    def __init__(self, slot: Slot) -> None:
        self.over = False  # the host sends no more, or we have closed the channel
        self.writable = asyncio.Event()
        self.writable.set()
        self._slot = slot
        self._finished = asyncio.Event()  # the channel is gone on both sides
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
        """Throw away what is unread and what still comes."""
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
        return True  # we end our side ourselves

    def connection_lost(self, exc: Exception | None) -> None:
        self._paused = False  # the channel must not be resumed any more: asyncssh would trip over that
        self._end()
        self._finished.set()
        self._slot.free()

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def _end(self) -> None:
        """Nobody waits any longer, be it to read or to write."""
        self.over = True
        self._readable.set()
        self.writable.set()

    def _resume(self) -> None:
        if self._paused and self._channel is not None:
            self._paused = False
            self._channel.resume_reading()
