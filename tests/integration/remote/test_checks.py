"""A command in the workspace of a turn whose agent has ended: what it sees, how it ends, that nothing is left."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from adapters.isolation import Isolation
from remote.errors import HostUnreachable
from remote.host import Host
from remote.run import Output, run_script
from remote.spool import Spool
from remote.test_command import end_checks, run_check
from tests.support.processes import look
from tests.support.ssh.laboratory import Lab, eventually
from tests.support.ssh.ssh_laboratory import SshLab
from tests.support.ssh.sshd import Sshd

# The parent's group is that of the shell which waits for the answer.
DEADLY = 'read -r stat </proc/$PPID/stat; set -- ${stat##*) }; kill -9 "-$3"; sleep 60'


async def ended_turn(lab: Lab) -> Spool:
    spool = lab.spool()
    await lab.run(lab.sh("echo over"), spool)
    return spool


def guarded(lab: Lab, spool: Spool) -> bool:
    """Return True if the guard of a command is waiting for its 60 seconds to pass."""
    mark = f"RUNTURN_SPOOL={spool.path}\0"
    return any(each.command == "sleep\00060\0" and each.carries(mark) for each in look())


async def checked(lab: Lab, spool: Spool, command: str, **options: Any) -> Output:
    given: dict[str, Any] = {"env": {}, "timeout_s": 60.0, "tail": 1000, "host": lab.host, "epoch": 1} | options
    host: Host = given.pop("host")
    return await run_check(
        host, spool, given.pop("epoch"), lab.command("true"), command, containment=lab.containment, **given
    )


async def test_command_runs_in_the_workspace_and_its_exit_and_output_are_told(any_lab: Lab) -> None:
    spool = await ended_turn(any_lab)
    output = await checked(any_lab, spool, 'pwd\necho "to stderr: $ODD" >&2; exit 3', env={"ODD": "it's\n'odd' é"})
    assert output.exit == 3
    assert output.stdout.decode() == f"{any_lab.workspace}\nto stderr: it's\n'odd' é\n"
    assert (await checked(any_lab, spool, 'echo "$epoch"', env={"epoch": "0"})).stdout == b"0\n"
    assert (await checked(any_lab, spool, "cat; true")).exit == 0  # its stdin is empty
    usual = await run_script(any_lab.host, "umask")
    assert (await checked(any_lab, spool, "umask")).stdout == usual.stdout
    await any_lab.nothing_left(spool)


async def test_only_the_end_of_the_output_is_told(lab: Lab) -> None:
    spool = await ended_turn(lab)
    output = await checked(lab, spool, "head -c 3000000 /dev/zero | tr '\\0' x; echo; echo the end", tail=20)
    assert output.stdout == b"x" * 11 + b"\nthe end\n"


async def test_whatever_a_command_has_started_ends_with_it(any_lab: Lab) -> None:
    spool = await ended_turn(any_lab)
    output = await checked(any_lab, spool, "sleep 600 & setsid sleep 600 & echo started; exit 1")
    assert (output.exit, output.stdout) == (1, b"started\n")
    await any_lab.nothing_left(spool)


async def test_command_that_takes_too_long_is_ended(lab: Lab) -> None:
    spool = await ended_turn(lab)
    output = await checked(lab, spool, "echo begun; setsid sleep 600 & sleep 600", timeout_s=1)
    assert (output.exit, output.stdout) == (137, b"begun\n")
    await lab.nothing_left(spool)


async def test_command_whose_follower_was_lost_is_ended_by_the_next_one(lab: Lab) -> None:
    spool = await ended_turn(lab)
    first = asyncio.create_task(checked(lab, spool, "touch begun; sleep 600"))
    await eventually((lab.workspace / "begun").exists)
    # A guard that starts after its shell was killed terminates the command at once.
    await eventually(lambda: guarded(lab, spool))
    lab.host.cut()  # as when its worker was killed, with all that was in its process group
    with pytest.raises(HostUnreachable):
        await first
    assert lab.marked(spool)
    assert (await checked(lab, spool, "echo again")).stdout == b"again\n"
    await lab.nothing_left(spool)


async def test_command_is_ended_when_nobody_wants_it_any_more(lab: Lab) -> None:
    spool = await ended_turn(lab)
    running = asyncio.create_task(checked(lab, spool, "touch begun; sleep 600"))
    await eventually((lab.workspace / "begun").exists)
    await end_checks(lab.host, spool, 1)
    assert (await running).exit != 0
    await lab.nothing_left(spool)


async def test_worker_that_has_lost_the_turn_ends_no_command_of_its_successor(lab: Lab) -> None:
    spool = await ended_turn(lab)
    frozen = asyncio.create_task(checked(lab, spool, "touch begun; sleep 600"))
    await eventually((lab.workspace / "begun").exists)
    command = "touch begun-again; until test -e go; do sleep 0.1; done; echo done"
    successor = asyncio.create_task(checked(lab, spool, command, epoch=2))
    await eventually((lab.workspace / "begun-again").exists)
    assert (await frozen).exit != 0
    await end_checks(lab.host, spool, 1)
    assert (await checked(lab, spool, "touch late")).exit != 0
    (lab.workspace / "go").touch()
    assert await successor == Output(0, b"done\n", b"")
    assert not (lab.workspace / "late").exists()
    await lab.nothing_left(spool)


async def test_command_that_kills_its_parent_leaves_nothing(any_lab: Lab) -> None:
    spool = await ended_turn(any_lab)
    # In a namespace, its parent is process 1, which nobody inside can kill.
    code = 0 if any_lab.containment.isolation is Isolation.NAMESPACE else 137
    assert (await checked(any_lab, spool, "kill -9 $PPID")).exit == code
    await any_lab.nothing_left(spool)


async def test_command_that_ends_whoever_runs_it_is_given_up(any_lab: Lab) -> None:
    spool = await ended_turn(any_lab)
    if any_lab.containment.isolation is Isolation.NAMESPACE:  # it cannot see them
        await checked(any_lab, spool, DEADLY)
        return
    for _ in range(5):
        with pytest.raises(HostUnreachable):
            await checked(any_lab, spool, DEADLY)
        assert (await checked(any_lab, spool, "echo another")).exit == 0
    output = await checked(any_lab, spool, DEADLY)
    assert (output.exit, b"not tried again" in output.stdout) == (137, True)
    await any_lab.nothing_left(spool)


async def test_commands_run_over_ssh_as_well(lab: Lab, site: SshLab, sshd: Sshd) -> None:
    spool = await ended_turn(lab)
    target = site.target(sshd)
    async with site.pool(target) as host:
        output = await checked(lab, spool, "pwd; sleep 600 & exit 4", host=host)
        assert (output.exit, output.stdout.decode()) == (4, f"{lab.workspace}\n")
        assert (await checked(lab, spool, "sleep 600", host=host, timeout_s=1)).exit == 137
    await lab.nothing_left(spool)
