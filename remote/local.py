"""The local host: a shell on this machine, used like a remote one."""

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

_CLOSE_S = 2.0  # a shell exits within milliseconds after its stdin ends


@dataclass(frozen=True, slots=True)
class LocalHost:
    """This machine. Its shells and everything they start see the environment `env`, not the worker's."""

    env: Mapping[str, str]  # needs PATH, and HOME for agents that keep session files
    name: str = "local"
    path: str = ""
    rest_s: float = 0.0  # it is never out of reach

    async def open_channel(self) -> Channel:
        """Start a shell in a separate process session, out of reach of Ctrl-C at the worker's terminal."""
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
        """Do nothing: no connection is kept open."""


class LocalChannel:
    """Pipes of a local shell."""

    def __init__(self, host: str, process: Process) -> None:
        assert process.stdin is not None and process.stdout is not None  # noqa: S101 - both are pipes, see above
        self._host = host
        self._process = process
        self._stdin = process.stdin
        self._stdout = process.stdout
        self._reading = asyncio.Lock()  # a channel may be closed during a read
        self._closed = False

    async def write(self, data: bytes) -> None:
        """Send all of `data`. Raise HostUnreachable if the shell has exited."""
        try:
            self._stdin.write(data)
            await self._stdin.drain()
        except OSError as error:
            raise HostUnreachable(self._host, f"the shell has exited: {error}") from error

    async def read(self) -> bytes:
        """Return the next bytes, or b"" once the shell has exited or the channel was closed."""
        async with self._reading:
            return b"" if self._closed else await self._stdout.read(READ_BYTES)

    async def close(self) -> None:
        """End the shell's input; after two seconds, kill its process group, which contains no supervisor."""
        self._closed = True
        self._stdin.close()
        if not await self._gone():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            if not await self._gone():  # another process holds the pipe; asyncio has no public API to release it
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
