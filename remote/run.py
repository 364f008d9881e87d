"""Short commands on a host that return their whole output."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from remote.errors import HostError, HostUnreachable, SpawnRefused
from remote.host import Channel, Host
from remote.shell import library, program

_STDERR_BYTES = 65_536
_LARGEST_OUTPUT = 256 * 2**20  # bytes; a sparse file of a terabyte must not fill the worker's memory
_REFUSED = 90  # exit status of scripts that refuse


@dataclass(frozen=True, slots=True)
class Output:
    """Exit status and output of a command."""

    exit: int  # 128 + n after signal n
    stdout: bytes
    stderr: bytes  # its last 64 KiB, without NULs and trailing newlines


async def run_script(host: Host, script: str, args: Sequence[str] = (), *, timeout_s: float = 30.0) -> Output:
    """Run a POSIX sh script with `args` in "$@" and no input, and return its output.

    The script must exit by itself: after `timeout_s` seconds, only its channel is closed.
    Raise HostUnreachable if that happens, or if the channel ends before the script does, and HostError for more
    than 256 MiB of output.
    """
    nonce = secrets.token_hex(16)
    variables = {"nonce": nonce, "script": script}
    request = program(library("command"), "run_command", args, variables, host.path)
    channel = await host.open_channel()
    try:
        async with asyncio.timeout(timeout_s):
            printed = await _converse(host, channel, request)
    except TimeoutError as error:
        raise HostUnreachable(host.name, f"a command did not finish within {timeout_s} s") from error
    finally:
        await channel.close()
    return _parse(host, printed, nonce)


async def ask(host: Host, files: Sequence[str], function: str, *args: str, timeout_s: float = 30.0) -> bytes:
    """Call a function from these files of `scripts/` and return what it printed.

    Raise HostUnreachable, SpawnRefused, or HostError for any other failure.
    """
    script = f'{library(*files)}\n{function} "$@"'
    return answered(host, function, await run_script(host, script, args, timeout_s=timeout_s))


def answered(host: Host, function: str, output: Output) -> bytes:
    """Return what a function printed. Raise SpawnRefused or HostError if it failed."""
    if output.exit == 0:
        return output.stdout
    said = output.stderr.decode("utf-8", "replace").strip()
    if output.exit == _REFUSED:
        code, _, detail = said.rpartition("\n")[2].partition(" ")
        raise SpawnRefused(host.name, code, detail)
    raise HostError(host.name, f"{function} failed with exit {output.exit}: {said}")


async def _converse(host: Host, channel: Channel, request: bytes) -> bytes:
    sending = asyncio.create_task(channel.write(request))
    chunks, size = [], 0
    try:
        while chunk := await channel.read():
            chunks.append(chunk)
            size += len(chunk)
            if size > _LARGEST_OUTPUT:
                raise HostError(host.name, f"a command printed more than {_LARGEST_OUTPUT // 2**20} MiB")
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
