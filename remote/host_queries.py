"""A worker's queries to a host outside its turns: about spools, and about what a turn needs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from adapters.command import Command, SessionFiles
from remote.containment import Containment, session_variables
from remote.host import Host
from remote.run import Output, answered, ask, run_script
from remote.shell import assignment, library
from remote.spool import Spool

STDERR_TAIL_BYTES = 65_536  # also in follower.sh
_NO_COMMAND = Command(("sh",), "")
_PROBE_MARGIN_S = 10.0  # for the channel; the host itself kills a probe in time


@dataclass(frozen=True, slots=True)
class SpoolState:
    """A spool found on a host."""

    id: str
    alive: bool  # its supervisor is running
    age_s: int | None  # since it was last followed; None if the host cannot tell


async def read_session_files(host: Host, spool: Spool, files: SessionFiles) -> bytes:
    """Return the lines added to these files since the turn began, file by file.

    Each ends in a newline. The root is the one that the turn was started with. Raise HostUnreachable, or
    SpawnRefused if the spool is missing.
    """
    return _lines(await _ask(host, "read_session_files", spool.root, spool.id, *files.patterns, timeout_s=120.0))


async def read_whole_session_files(host: Host, command: Command, files: SessionFiles) -> bytes:
    """Return all lines of these files, file by file, for a turn whose spool is missing.

    The root is the one that `command` would be started with now. Raise HostUnreachable.
    """
    known = session_variables(command, files)
    root = (known["session_root"], known["session_env"], known["session_default"])
    return _lines(await _ask(host, "read_whole_session_files", *root, *files.patterns, timeout_s=120.0))


async def end_processes(host: Host, spool: Spool) -> None:
    """Terminate everything that a turn whose spool is missing has left, and prevent its starts that are under way.

    Raise HostUnreachable, SpawnRefused (spool_exists) if such a start was faster and the turn is to be followed
    again, or HostError if a process cannot be terminated.
    """
    await _ask(host, "end_processes", spool.root, spool.id)


async def read_stderr_tail(host: Host, spool: Spool, max_bytes: int = STDERR_TAIL_BYTES) -> bytes:
    """Return the end of the agent's stderr. Raise HostUnreachable, or SpawnRefused if the spool is missing."""
    return await _ask(host, "read_stderr_tail", spool.root, spool.id, str(max_bytes))


async def read_input(host: Host, spool: Spool) -> bytes:
    """Return all input lines of a live turn so far. Raise HostUnreachable or SpawnRefused.

    A follower that has attached reads all of it: no earlier follower can add lines any more.
    """
    return await _ask(host, "read_input", spool.root, spool.id, timeout_s=120.0)


async def containing_program(host: Host, containment: Containment) -> tuple[str, str]:
    """Return the host's program that contains agents, and why systemd does not keep their limits.

    Each is blank if not so. Raise SpawnRefused (isolation_unavailable) if agents cannot be contained like this,
    and HostUnreachable.
    """
    variables = containment.variables(_NO_COMMAND)
    script = b"".join(assignment(*each) for each in variables.items()).decode("utf-8", "surrogateescape")
    scripts = ("state", "upkeep", "checks", "containment", "scope", "repositories")
    said = answered(host, "tell_wall", await run_script(host, f"{script}{library(*scripts)}\ntell_wall"))
    program, _, reason = said.decode("utf-8", "replace").partition("\n")
    return program, reason.strip()


async def free_bytes(host: Host, path: str) -> int:
    """Return the bytes available to us on the file system where `path`, absolute or below ~/, is or would be."""
    return 1024 * int(await _ask(host, "free_kibibytes", path))


async def list_spools(host: Host, root: str) -> list[SpoolState]:
    """Return the spools below `root`. Raise HostUnreachable."""
    output = await _ask(host, "list_spools", root)
    return [_parse_state(line) for line in output.decode().splitlines()]


async def remove_spool(host: Host, spool: Spool) -> None:
    """Remove a spool, if any, whose turn has finished or was killed. Raise SpawnRefused (spool_in_use)."""
    await _ask(host, "remove_spool", spool.root, spool.id, spool.seal)


async def remove_drafts(host: Host, root: str, older_than_s: int) -> None:
    """Remove the remains of starts that were cut off longer ago than that, before there was a spool."""
    await _ask(host, "remove_drafts", root, str(older_than_s))


async def check_workspace(host: Host, path: str, roots: Sequence[str] = ()) -> None:
    """Raise SpawnRefused unless `path` is a directory that an agent can work in, below one of `roots` if any."""
    await _ask(host, "check_workspace", path, "\n".join(roots))


async def check_spool_root(host: Host, root: str) -> None:
    """Create the directory of all spools if missing. Raise SpawnRefused if nothing can be written there."""
    await _ask(host, "check_spool_root", root)


async def may_write(host: Host, path: str) -> bool:
    """Return True if permissions let us write there."""
    return await _ask(host, "may_write", path) == b"yes\n"


async def environment_names(host: Host) -> frozenset[str]:
    """Return the names, not the values, of the variables set on the host for everything that runs there."""
    return frozenset((await _ask(host, "environment_names")).decode(errors="replace").splitlines())


async def clock_offset_s(host: Host, clock: Callable[[], float]) -> float:
    """Return the seconds that the host is at least ahead of `clock`; 0 if transit time may explain them."""
    asked_at = clock()
    there = int(await _ask(host, "epoch"))  # truncated: the actual time may be up to a second later
    least, most = there - clock(), there + 1 - asked_at
    return max(least, min(most, 0.0))


async def check_tools(host: Host) -> None:
    """Raise SpawnRefused (tool_missing) unless the programs that every turn needs are installed."""
    await _ask(host, "require_tools")


async def probe(host: Host, argv: Sequence[str], timeout_s: float = 15.0) -> Output:
    """Run an external program such as `claude --version` with no input.

    After `timeout_s`, the host kills it and everything left of its process group; its exit is then 137.
    A program that is not found exits with 127.
    """
    script = f'{library("upkeep")}\nprobe "$@"'
    seconds = str(math.ceil(timeout_s))
    return await run_script(host, script, (seconds, *argv), timeout_s=timeout_s + _PROBE_MARGIN_S)


async def _ask(host: Host, function: str, *args: str, timeout_s: float = 30.0) -> bytes:
    return await ask(
        host, ("state", "processes", "checks", "sessions", "upkeep"), function, *args, timeout_s=timeout_s
    )


def _lines(output: bytes) -> bytes:
    """Return the lines that are not empty, each with its newline."""
    return b"".join(line + b"\n" for line in output.split(b"\n") if line)


def _parse_state(line: str) -> SpoolState:
    name, life, age = line.split(" ")
    return SpoolState(name, life == "alive", None if age == "-" else int(age))
