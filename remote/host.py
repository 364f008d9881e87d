"""The seam between a turn and the machine it runs on: anything that opens a shell channel is a host."""

from __future__ import annotations

from typing import Protocol

READ_BYTES = 262_144  # at most so many bytes in one read of a channel


class Channel(Protocol):
    """One shell on a host: its stdin and its stdout, as bytes. It runs `shell.BOOT`.

    Ending a channel ends nothing on the host but that shell.
    """

    async def write(self, data: bytes) -> None:
        """Send all of `data`. Raises HostUnreachable when the channel has ended."""

    async def read(self) -> bytes:
        """Return the next bytes, at most READ_BYTES, or b"" at the end. A cancelled read loses nothing.

        So does a read beside `close`: it returns the very next bytes, or b"".
        """

    async def close(self) -> None:
        """End the channel. Takes a bounded time, never raises, and may be repeated."""


class Host(Protocol):
    """A machine that turns can run on."""

    @property
    def name(self) -> str:
        """What people call it, for messages and labels."""

    @property
    def path(self) -> str:
        """Directories that go before the PATH of its shells; may be empty."""

    @property
    def rest_s(self) -> float:
        """Seconds for which it is better left alone, because it keeps failing; 0: it is ready."""

    async def open_channel(self) -> Channel:
        """Start a shell there. Raises HostError; HostUnreachable when it is worth another try."""

    async def close(self) -> None:
        """End what is kept open to it. Turns go on there."""
