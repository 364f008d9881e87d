"""Queries to a host: functions of `scripts/` that print the answer, or refuse."""

from __future__ import annotations

from collections.abc import Sequence

from remote.errors import HostError, SpawnRefused
from remote.host import Host
from remote.run import Output, run_script
from remote.shell import library

_REFUSED = 90  # exit status of scripts that refuse


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
