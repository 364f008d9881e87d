"""A command in the workspace of a turn whose agent has exited: its exit status, and the end of its output."""

from __future__ import annotations

import math
from collections.abc import Mapping

from adapters.isolation import Isolation
from remote.host import Host
from remote.run import Output, run_script
from remote.shell import assignment, library
from remote.spool import Spool

_KILLED = 137
_MARGIN_S = 60.0  # for the channel, and for terminating what is left of it


async def run_check(
    host: Host,
    spool: Spool,
    epoch: int,
    directory: str,
    command: str,
    env: Mapping[str, str],
    isolation: Isolation | None = None,
    *,
    timeout_s: float,
    tail: int,
) -> Output:
    """Run `command` with sh; return the last `tail` bytes of its output as stdout, and exit 137 after `timeout_s`.

    Terminate everything it started, and whatever a worker whose claim has a lower `epoch` was running for this
    turn. Do not start it where a worker with a higher epoch has been. Raise HostUnreachable, and leave it running
    for up to `timeout_s` then: see `end_checks`.
    """
    environment = b"".join(b"export " + assignment(name, value) for name, value in env.items() if name != "LC_ALL")
    locale = b"export " + assignment("LC_ALL", env["LC_ALL"]) if "LC_ALL" in env else b"LC_ALL=$1\n"
    text = (environment + locale).decode("utf-8", "surrogateescape")
    limits = (str(math.ceil(timeout_s)), str(tail))
    args = (spool.root, spool.id, str(epoch), directory, *limits, command, text, isolation or "auto")
    output = await run_script(host, _script("check"), args, timeout_s=timeout_s + _MARGIN_S)
    if output.exit == _KILLED:  # perhaps the kill hit the shell that cleans up
        await end_checks(host, spool, epoch)
    return output


async def end_checks(host: Host, spool: Spool, epoch: int) -> None:
    """Terminate the commands of a turn whose agent has exited, except at a higher epoch. Raise HostUnreachable."""
    await run_script(host, _script("end_checks_of"), (spool.root, spool.id, str(epoch)))


def _script(function: str) -> str:
    return f'{library("state", "containment", "processes", "check")}\n{function} "$@"'
