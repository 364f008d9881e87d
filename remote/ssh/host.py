"""A host reached over SSH."""

from __future__ import annotations

from remote.host import Channel
from remote.ssh.pool import Pool
from remote.ssh.target import Target


class SshHost:
    """A `remote.host.Host` over SSH. All its channels belong to one event loop."""

    def __init__(self, target: Target, pool: Pool) -> None:
        self._target = target
        self._pool = pool

    @property
    def name(self) -> str:
        """Return the display name."""
        return self._target.name

    @property
    def path(self) -> str:
        """Return the directories to put before the PATH of its shells."""
        return self._target.path

    @property
    def connections(self) -> int:
        """Return the number of open and opening connections."""
        return self._pool.connections

    @property
    def rest_s(self) -> float:
        """Return the seconds for which to avoid it after failures; 0: it is ready."""
        return self._pool.rest_s

    @property
    def failing(self) -> bool:
        """Return True if it was avoided and no connect has succeeded since."""
        return self._pool.failing

    async def open_channel(self) -> Channel:
        """Start a shell there. Raise HostUnreachable, HostAuthFailed or HostKeyChanged."""
        return await self._pool.open_shell()

    async def close(self) -> None:
        """Close all connections. Turns keep running on the host."""
        await self._pool.close()
