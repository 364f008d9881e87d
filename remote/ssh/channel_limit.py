"""Measuring how many shells a host allows on one connection."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter

from remote.errors import HostError, HostUnreachable
from remote.host import Channel, Host
from remote.shell import library, program


async def shells_on_one_connection(host: Host, wanted: int) -> int:
    """Open shells until `wanted` share a connection, or a third connection is opened; then close all of them.

    Return the most shells that share one: on the first, the host may still count shells that have ended. Raise
    HostError if the host does not tell connections apart.
    """
    channels: list[Channel] = []
    shells: Counter[bytes] = Counter()
    try:
        while len(shells) < 3 and wanted not in shells.values():
            channels.append(await host.open_channel())
            shells[await _connection_of(host, channels[-1])] += 1
        return max(shells.values())
    finally:
        await asyncio.gather(*(channel.close() for channel in channels))


async def _connection_of(host: Host, channel: Channel) -> bytes:
    """Return sshd's name for a shell's connection: addresses and ports of both ends. The shell stays open."""
    mark = secrets.token_hex(16)
    await channel.write(program(library("upkeep"), "hold", (mark,), path=host.path))
    said = b""
    while b"\n" not in (told := said.partition(f"\n{mark} ".encode())[2]):
        chunk = await channel.read()
        if not chunk:
            raise HostUnreachable(host.name, "a shell exited before it was ready")
        said += chunk
    if not (connection := told.partition(b"\n")[0]):
        raise HostError(host.name, "its SSH server does not report which connection a shell uses (SSH_CONNECTION)")
    return connection
