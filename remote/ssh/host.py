"""A host that is reached over SSH."""

from __future__ import annotations

from remote.host import Channel
from remote.ssh.pool import Pool
from remote.ssh.target import Target


class SshHost:
    """See `remote.host.Host`. All its channels belong to one loop."""

    def __init__(self, target: Target, pool: Pool) -> None:
        self._target = target
        self._pool = pool

    @property
    def name(self) -> str:
        """What people call it."""
        return self._target.name

    @property
    def path(self) -> str:
        """Directories that go before the PATH of its shells."""
        return self._target.path

    @property
    def connections(self) -> int:
        """Connections that stand or are being made."""
        return self._pool.connections

    @property
    def rest_s(self) -> float:
        """Seconds for which it is better left alone, after failures; 0: it is ready."""
        return self._pool.rest_s

    @property
    def failing(self) -> bool:
        """Whether it was left alone, and has not been connected to since."""
        return self._pool.failing

    async def open_channel(self) -> Channel:
        """Start a shell there. Raises HostUnreachable, HostAuthFailed, HostKeyChanged."""
        return await self._pool.open_shell()

    async def close(self) -> None:
        """End all connections. Turns go on there."""
        await self._pool.close()
