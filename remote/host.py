"""The seam between a turn and its machine: anything that opens a shell channel is a host."""

from __future__ import annotations

from typing import Protocol

READ_BYTES = 262_144  # maximum per read from a channel


class Channel(Protocol):
    """A shell on a host: its stdin and stdout, as bytes. It runs `shell.BOOT`.

    Closing a channel ends only that shell on the host.
    """

    async def write(self, data: bytes) -> None:
        """Send all of `data`. Raise HostUnreachable if the channel has ended."""

    async def read(self) -> bytes:
        """Return the next bytes, at most READ_BYTES, or b"" at the end. A cancelled read loses nothing.

        Neither does a read concurrent with `close`: it returns the very next bytes, or b"".
        """

    async def close(self) -> None:
        """Close the channel. Takes bounded time, never raises, and may be repeated."""


class Host(Protocol):
    """A machine that can run turns."""

    @property
    def name(self) -> str:
        """Return the display name, for messages and labels."""

    @property
    def path(self) -> str:
        """Return the directories to put before the PATH of its shells; may be empty."""

    @property
    def rest_s(self) -> float:
        """Return the seconds for which to avoid it because it keeps failing; 0: it is ready."""

    async def open_channel(self) -> Channel:
        """Start a shell there. Raise HostError; HostUnreachable if a retry may help."""

    async def close(self) -> None:
        """Close all connections to it. Its turns keep running."""
