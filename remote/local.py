"""The local host: a shell of this machine, spoken to as if it were far away."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping
from dataclasses import dataclass

from remote.errors import HostUnreachable
from remote.host import READ_BYTES, Channel
from remote.shell import BOOT_SCRIPT

_CLOSE_S = 2.0  # a shell whose stdin has ended leaves within milliseconds


@dataclass(frozen=True, slots=True)
class LocalHost:
    """This machine. Its shells and all they start see the environment `env` and nothing of the worker's own."""

    env: Mapping[str, str]  # needs PATH, and HOME for agents that keep session files
    name: str = "local"
    path: str = ""
    rest_s: float = 0.0  # it never is out of reach

    async def open_channel(self) -> Channel:
        """Start a shell in a session of its own, which no Ctrl-C at the worker's terminal reaches."""
        try:
            process = await asyncio.create_subprocess_exec(
                "sh",
                "-c",
                BOOT_SCRIPT,
                stdin=PIPE,
                stdout=PIPE,
                stderr=DEVNULL,
                env=self.env,
                cwd="/",
                start_new_session=True,
                limit=READ_BYTES,
            )
        except OSError as error:
            raise HostUnreachable(self.name, f"no shell: {error}") from error
        return LocalChannel(self.name, process)

    async def close(self) -> None:
        """Nothing is kept open."""


class LocalChannel:
    """The pipes of one local shell."""

    def __init__(self, host: str, process: Process) -> None:
        assert process.stdin is not None and process.stdout is not None  # noqa: S101 - both are pipes, see above
        self._host = host
        self._process = process
        self._stdin = process.stdin
        self._stdout = process.stdout
        self._reading = asyncio.Lock()  # a channel may be closed while somebody waits for its next bytes
        self._closed = False

    async def write(self, data: bytes) -> None:
        """Send all of `data`. Raises HostUnreachable when the shell has gone."""
        try:
            self._stdin.write(data)
            await self._stdin.drain()
        except OSError as error:
            raise HostUnreachable(self._host, f"the shell has gone: {error}") from error

    async def read(self) -> bytes:
        """Return the next bytes, or b"" once the shell has gone or the channel was closed."""
        async with self._reading:
            return b"" if self._closed else await self._stdout.read(READ_BYTES)

    async def close(self) -> None:
        """End the shell's input; after two seconds, kill its process group. No supervisor is in that."""
        self._closed = True
        self._stdin.close()
        if not await self._gone():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            if not await self._gone():  # somebody else holds the pipe; asyncio has no public way to let go of it
                self._process._transport.close()  # type: ignore[attr-defined]

    async def _gone(self) -> bool:
        try:
            async with asyncio.timeout(_CLOSE_S):
                async with self._reading:
                    while await self._stdout.read(READ_BYTES):
                        pass
                await self._process.wait()
        except TimeoutError:
            return False
        return True
