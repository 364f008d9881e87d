"""A command in the workspace of a turn whose agent has exited: its exit status, and the end of its output."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from adapters.command import Command
from remote.containment import AS_USUAL, Containment
from remote.host import Host
from remote.run import Output, answered, run_script
from remote.shell import assignment, library
from remote.spool import Spool

_KILLED = 137
_REFUSAL = re.compile(rb"\n(isolation_unavailable|workspace_not_isolated) ")
_MARGIN_S = 60.0  # for the channel, and for terminating what is left of it


async def run_check(
    host: Host,
    spool: Spool,
    epoch: int,
    agent: Command,
    command: str,
    env: Mapping[str, str],
    *,
    containment: Containment = AS_USUAL,
    timeout_s: float,
    tail: int,
) -> Output:
    """Run `command` with sh where `agent` ran, contained like it. After `timeout_s`, its exit is 137.

    Return the last `tail` bytes of its output as stdout. Raise SpawnRefused if the host cannot contain it.

    Terminate everything it started, and whatever a worker whose claim has a lower `epoch` was running for this
    turn. Do not start it where a worker with a higher epoch has been. Raise HostUnreachable, and leave it running
    for up to `timeout_s` then: see `end_checks`.
    """
    environment = b"".join(b"export " + assignment(name, value) for name, value in env.items() if name != "LC_ALL")
    locale = b"export " + assignment("LC_ALL", env["LC_ALL"]) if "LC_ALL" in env else b"LC_ALL=$1\n"
    text = (environment + locale).decode("utf-8", "surrogateescape")
    args = (spool.root, spool.id, str(epoch), str(math.ceil(timeout_s)), str(tail), command, text)
    surroundings = b"".join(assignment(*each) for each in containment.variables(agent).items())
    script = surroundings.decode("utf-8", "surrogateescape") + _script("check")
    output = await run_script(host, script, args, timeout_s=timeout_s + _MARGIN_S)
    if _REFUSAL.search(b"\n" + output.stderr):  # what the command prints there is in its output
        answered(host, "check", output)
    if output.exit == _KILLED:  # perhaps the kill hit the shell that cleans up
        await end_checks(host, spool, epoch)
    return output


async def end_checks(host: Host, spool: Spool, epoch: int) -> None:
    """Terminate the commands of a turn whose agent has exited, except at a higher epoch. Raise HostUnreachable."""
    await run_script(host, _script("end_checks_of"), (spool.root, spool.id, str(epoch)))


def _script(function: str) -> str:
    contained = ("containment", "scope", "resources", "repositories")
    return f'{library("state", *contained, "processes", "checks", "sessions", "check")}\n{function} "$@"'
