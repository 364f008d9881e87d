"""Short commands on a host that return their whole output."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from remote.errors import HostUnreachable
from remote.host import Channel, Host
from remote.shell import library, program

_STDERR_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Output:
    """Exit status and output of a command."""

    exit: int  # 128 + n after signal n
    stdout: bytes
    stderr: bytes  # its last 64 KiB, without NULs and trailing newlines


async def run_script(host: Host, script: str, args: Sequence[str] = (), *, timeout_s: float = 30.0) -> Output:
    """Run a POSIX sh script with `args` in "$@" and no input, and return its output.

    The script must exit by itself: after `timeout_s` seconds, only its channel is closed.
    Raise HostUnreachable if that happens, or if the channel ends before the script does.
    """
    nonce = secrets.token_hex(16)
    variables = {"nonce": nonce, "script": script}
    request = program(library("command"), "run_command", args, variables, host.path)
    channel = await host.open_channel()
    try:
        async with asyncio.timeout(timeout_s):
            printed = await _converse(channel, request)
    except TimeoutError as error:
        raise HostUnreachable(host.name, f"a command did not finish within {timeout_s} s") from error
    finally:
        await channel.close()
    return _parse(host, printed, nonce)


async def _converse(channel: Channel, request: bytes) -> bytes:
    sending = asyncio.create_task(channel.write(request))
    chunks = []
    try:
        while chunk := await channel.read():
            chunks.append(chunk)
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
    return b"".join(chunks)


def _parse(host: Host, printed: bytes, nonce: str) -> Output:
    _, begun, output = printed.partition(f"\nRT-BEGIN {nonce}\n".encode())
    stdout, ended, end = output.rpartition(f"\nRT-EXIT {nonce} ".encode())
    end, complete, _ = end.partition(f"\nRT-END {nonce}\n".encode())
    if not (begun and ended and complete):
        raise HostUnreachable(host.name, "the channel ended in the middle of a command")
    code, _, stderr = end.partition(b"\n")
    return Output(int(code), stdout, stderr[-_STDERR_BYTES:])
