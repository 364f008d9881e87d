"""What a worker asks a host beside its turns: about spools, and about what a turn needs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from adapters.command import SessionFiles
from remote.errors import HostError, SpawnRefused
from remote.host import Host
from remote.run import Output, run_script
from remote.shell import library
from remote.spool import Spool

_REFUSED = 90  # how upkeep.sh exits when it refuses
_PROBE_MARGIN_S = 10.0  # for the channel; the host itself ends a probe in time


@dataclass(frozen=True, slots=True)
class SpoolState:
    """One spool found on a host."""

    id: str
    alive: bool  # its supervisor runs
    ended: bool  # its turn has ended in order; neither alive nor ended: killed, and nobody has attached since
    age_s: int | None  # since its agent was started; None if that never happened


async def read_session_files(host: Host, spool: Spool, files: SessionFiles) -> bytes:
    """Return the lines that were added to these files since the turn began, file after file.

    Each ends in a newline. The root is the one that the turn was started with. Raises HostUnreachable, and
    SpawnRefused for a missing spool.
    """
    output = await _ask(host, "read_session_files", spool.path, *files.patterns, timeout_s=120.0)
    return b"".join(line + b"\n" for line in output.split(b"\n") if line)


async def read_stderr_tail(host: Host, spool: Spool, max_bytes: int = 65_536) -> bytes:
    """Return the end of what the agent wrote to stderr. Raises HostUnreachable, and SpawnRefused (no spool)."""
    return await _ask(host, "read_stderr_tail", spool.path, str(max_bytes))


async def free_bytes(host: Host, path: str) -> int:
    """Return the bytes free for us on the file system where the absolute `path` is, or would be made."""
    return 1024 * int(await _ask(host, "free_kibibytes", path))


async def list_spools(host: Host, root: str) -> list[SpoolState]:
    """Return the spools below `root`. Raises HostUnreachable."""
    output = await _ask(host, "list_spools", root)
    return [_parse_state(line) for line in output.decode().splitlines()]


async def remove_spool(host: Host, spool: Spool) -> None:
    """Remove a spool whose turn has ended or was killed; none is fine. Raises SpawnRefused (spool_in_use)."""
    await _ask(host, "remove_spool", spool.root, spool.id)


async def check_workspace(host: Host, path: str) -> None:
    """Raise SpawnRefused unless the absolute `path` is a directory that an agent can work in."""
    await _ask(host, "check_workspace", path)


async def check_tools(host: Host) -> None:
    """Raise SpawnRefused (tool_missing) unless the programs that every turn needs are there."""
    await _ask(host, "require_tools")


async def probe(host: Host, argv: Sequence[str], timeout_s: float = 15.0) -> Output:
    """Run a foreign program such as `claude --version` with no input.

    The host kills it, and whatever is left of its process group, after `timeout_s`; its exit is 137 then.
    A program that is not found exits with 127.
    """
    script = f'{library("upkeep")}\nprobe "$@"'
    seconds = str(math.ceil(timeout_s))
    return await run_script(host, script, (seconds, *argv), timeout_s=timeout_s + _PROBE_MARGIN_S)


async def _ask(host: Host, function: str, *args: str, timeout_s: float = 30.0) -> bytes:
    script = f'{library("state", "processes", "checks", "upkeep")}\n{function} "$@"'
    output = await run_script(host, script, args, timeout_s=timeout_s)
    if output.exit == 0:
        return output.stdout
    said = output.stderr.decode("utf-8", "replace").strip()
    if output.exit == _REFUSED:
        code, _, detail = said.rpartition("\n")[2].partition(" ")
        raise SpawnRefused(host.name, code, detail)
    raise HostError(host.name, f"{function} failed with exit {output.exit}: {said}")


def _parse_state(line: str) -> SpoolState:
    name, life, state, age = line.split(" ")
    return SpoolState(name, life == "alive", state == "ended", None if age == "-" else int(age))
