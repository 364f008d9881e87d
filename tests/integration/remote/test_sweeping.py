"""What an agent leaves behind: found wherever it went, however fast it is, and nothing else is hit."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapters.isolation import Isolation
from remote.follower import Lease
from remote.shell import library
from remote.spool import Exit
from remote.test_command import run_check
from tests.support.processes import agent_of
from tests.support.ssh.laboratory import Lab, drain, eventually, read_until
from tests.support.ssh.ssh_laboratory import SshLab
from tests.support.ssh.sshd import Sshd

# In a tool's shell, which leads a session and exits at once. What it leaves writes to the pipe, and keeps it open.
TOOL = """setsid sh -c 'env -i "$@" >"$0" 2>&1 </dev/null &' "$1" {} sh -c 'echo on; sleep 600'"""
LEAVING = "{}; sleep 0.5; echo ready; {}"
# Hands over to a child every so many milliseconds; in a session of its own, if asked to.
CHAIN = """
import os, sys, time
pipe = os.open(sys.argv[1], os.O_WRONLY)
if os.fork() == 0:
    os.environ.clear()
    while True:
        os.write(pipe, b".")
        if os.fork(): os._exit(0)
        if sys.argv[3] == "setsid": os.setsid()
        time.sleep(float(sys.argv[2]) / 1000)
os.write(1, b"ready\\n")
if sys.argv[4] == "stay": time.sleep(600)
"""
# Leaves a process without an environment, of a certain name.
NAMED = """
import ctypes, os, sys, time
ctypes.CDLL(None).prctl(15, bytes.fromhex(sys.argv[1]), 0, 0, 0)
os.write(1, b"ready\\n")
time.sleep(600)
"""
LEAVING_NAMED = f"""
import os, sys, time
os.set_inheritable(os.open(sys.argv[1], os.O_WRONLY), True)
if os.fork() == 0:
    os.setsid()
    os.execve(sys.executable, [sys.executable, "-ISc", {NAMED!r}, sys.argv[2]], {{}})
time.sleep(600)
"""
# A worker: starts a turn, and leaves it to the next.
NESTED = """
import asyncio, sys
sys.path[:0] = sys.argv[6].split(":")
from random import Random
from adapters.command import Command
from remote.backoff import Patience
from remote.follower import Follower, Lease
from remote.local import LocalHost
from remote.spool import Spool
root, identity, seal, cwd, path = sys.argv[1:6]
async def main():
    command = Command(argv=("sh", "-c", "echo begun; while [ ! -e go ]; do sleep 0.05; done; echo end"), cwd=cwd)
    host = LocalHost(env={"PATH": path, "HOME": cwd, "TMPDIR": "/tmp"})
    patience = Patience(answer_s=20.0, first_delay_s=0.05, longest_delay_s=0.2, give_up_s=15.0)
    terms = dict(lease=Lease(60, 1), patience=patience, rng=Random(1))
    async with Follower(host, Spool(root, identity, seal), command, **terms) as turn:
        async for batch in turn:
            if b"begun" in batch.lines: break
    print("ready", flush=True)
asyncio.run(main())
"""


class Pipe:
    """A FIFO that tells whether a process has it open for writing, even one that no list of processes shows."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = str(path)
        self._end = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    def close(self) -> None:
        os.close(self._end)

    def is_open(self) -> bool:
        while True:
            try:
                if not os.read(self._end, 65536):
                    return False
            except BlockingIOError:
                return True

    async def begun(self) -> None:
        await eventually(self.is_open)


@pytest.fixture
def pipe(any_lab: Lab) -> Iterator[Pipe]:
    yield from opened(any_lab)


def opened(lab: Lab) -> Iterator[Pipe]:
    pipe = Pipe(lab.folder / "pipe")
    try:
        yield pipe
    finally:
        pipe.close()


@pytest.mark.parametrize("daemon", ["", "setsid"])
async def test_process_without_its_environment_ends_with_an_agent_that_leaves(
    any_lab: Lab, pipe: Pipe, daemon: str
) -> None:
    script = LEAVING.format(TOOL.format(daemon), "exit 3")
    output, end = await any_lab.run(any_lab.sh(script, pipe.path))
    assert (output, end) == (b"ready\n", Exit(3, "exit"))
    assert not pipe.is_open()


@pytest.mark.parametrize("daemon", ["", "setsid"])
async def test_process_without_its_environment_ends_with_a_cancel(any_lab: Lab, pipe: Pipe, daemon: str) -> None:
    script = LEAVING.format(TOOL.format(daemon), "sleep 600")
    async with any_lab.follow(any_lab.spool(), any_lab.sh(script, pipe.path)) as turn:
        await read_until(turn, b"ready")
        await pipe.begun()
        await turn.cancel()
        await drain(turn)
    assert not pipe.is_open()


@pytest.mark.parametrize("hop_ms", [20, 10, 5])
@pytest.mark.parametrize("session", ["same", "setsid"])
async def test_chain_of_short_lived_processes_does_not_outrun_the_sweep(
    any_lab: Lab, pipe: Pipe, hop_ms: int, session: str
) -> None:
    for stay in ["leave", "stay"] * 3:
        agent = any_lab.python(CHAIN, pipe.path, str(hop_ms), session, stay)
        async with any_lab.follow(any_lab.spool(), agent) as turn:
            await read_until(turn, b"ready")
            if stay == "stay":
                await pipe.begun()
                await turn.cancel()
            await drain(turn)
        assert not pipe.is_open()


async def test_process_that_sheds_both_marks_ends_with_its_parent_or_the_leader_of_its_session(
    any_lab: Lab, pipe: Pipe
) -> None:
    shed = 'ulimit -S -m unlimited; env -i sh -c "echo on; sleep 600" >"$0" 2>&1'
    tool = f"{shed} & ({shed} &) wait"  # a child, and an orphan in the same session
    script = """setsid sh -c "$2" "$1" & """ + LEAVING.format(":", "exit 3")
    output, end = await any_lab.run(any_lab.sh(script, pipe.path, tool))
    assert (output, end) == (b"ready\n", Exit(3, "exit"))
    await eventually(lambda: not pipe.is_open())  # it was signalled, while it could be found


async def test_process_without_its_environment_ends_with_a_test_command(any_lab: Lab, pipe: Pipe) -> None:
    spool = any_lab.spool()
    await any_lab.run(any_lab.sh("echo over"), spool)
    # One that carries both marks is found first.
    command = f"set -- {pipe.path}; sleep 600 & {LEAVING.format(TOOL.format('setsid'), 'exit 4')}"
    agent = any_lab.command("true")
    checked = await run_check(
        any_lab.host, spool, 1, agent, command, env={}, containment=any_lab.containment, timeout_s=60, tail=99
    )
    assert (checked.exit, checked.stdout) == (4, b"ready\n")
    assert not pipe.is_open()


async def test_process_is_found_whatever_it_calls_itself(any_lab: Lab, pipe: Pipe) -> None:
    for name in (b"a) S 1 1 1\n", b"\n7 (b) Z 1 1", b"c d"):
        agent = any_lab.python(LEAVING_NAMED, pipe.path, name.hex())
        async with any_lab.follow(any_lab.spool(), agent) as turn:
            await read_until(turn, b"ready")
            await turn.cancel()
            await drain(turn)
        assert not pipe.is_open()


async def test_stopped_agent_is_still_asked_to_end_in_order(any_lab: Lab) -> None:
    script = "trap 'echo result; exit 4' INT; echo ready; while :; do sleep 0.05; done"
    spool = any_lab.spool()
    async with any_lab.follow(spool, any_lab.sh(script)) as turn:
        await read_until(turn, b"ready")
        os.kill(agent_of(Path(spool.path)), signal.SIGSTOP)
        await turn.cancel()
        assert await drain(turn) == b"result\n"
        assert turn.exit == Exit(4, "cancel")


async def test_neighbours_are_not_hit(any_lab: Lab, pipe: Pipe) -> None:
    neighbour = any_lab.spool()
    bystander = await asyncio.create_subprocess_exec("env", "-i", "sleep", "600", start_new_session=True)
    script = "env -i sleep 600 & echo begun; while [ ! -e go ]; do sleep 0.05; done; echo end"
    async with any_lab.follow(neighbour, any_lab.sh(script)) as turn:
        await read_until(turn, b"begun")
        for stay in ("leave", "stay"):
            agent = any_lab.python(CHAIN, pipe.path, "5", "setsid", stay)
            async with any_lab.follow(any_lab.spool(), agent) as other:
                await read_until(other, b"ready")
                await other.cancel()
                await drain(other)
        (any_lab.workspace / "go").touch()
        assert await drain(turn) == b"end\n"
        assert turn.exit == Exit(0, "exit")
    assert bystander.returncode is None
    bystander.kill()
    await bystander.wait()


async def test_turn_that_an_agent_has_started_through_a_worker_of_its_own_is_another_turn(any_lab: Lab) -> None:
    """In a namespace, it ends with that."""
    contained = any_lab.containment.isolation is not Isolation.NONE
    inner = any_lab.spool()
    where = (
        inner.root,
        inner.id,
        inner.seal,
        str(any_lab.workspace),
        any_lab.path,
        ":".join(filter(None, sys.path)),
    )
    output, end = await any_lab.run(any_lab.command(sys.executable, "-c", NESTED, *where))
    assert (output, end) == (b"ready\n", Exit(0, "exit"))
    (any_lab.workspace / "go").touch()
    output, end = await any_lab.run(None, inner)
    if contained:
        assert (output, end.code in (None, 137, 143)) == (b"begun\n", True), end
    else:
        assert (output, end) == (b"begun\nend\n", Exit(0, "exit"))


# A turn whose process cannot be killed, on a host where each search takes three seconds.
IMMORTAL = """
clock=0
uptime() { now=$clock; }
find_members() { clock=$((clock + 3)) members=7; }
kill() { :; }
pause() { waited=$((waited + 1)); }
sweep
echo "$? $clock"
"""


def test_sweep_takes_less_than_the_minute_that_a_supervisor_has(any_lab: Lab) -> None:
    said = subprocess.run(
        ["sh", "-c", library("state", "processes") + IMMORTAL],
        env={"PATH": any_lab.path},
        capture_output=True,
        text=True,
        check=False,
    )
    status, seconds = map(int, said.stdout.split())
    assert (status, seconds < 60) == (1, True)


async def test_over_ssh_neither_a_bare_process_nor_a_chain_survives(lab: Lab, site: SshLab, sshd: Sshd) -> None:
    for pipe in opened(lab):
        async with site.pool(site.target(sshd)) as host:
            script = LEAVING.format(TOOL.format("setsid"), "exit 3")
            assert (await lab.run(lab.sh(script, pipe.path), host=host))[1] == Exit(3, "exit")
            assert not pipe.is_open()
            for stay in ("leave", "stay"):
                agent = lab.python(CHAIN, pipe.path, "5", "setsid", stay)
                async with lab.follow(lab.spool(), agent, host=host, lease=Lease(30, 0.2)) as turn:
                    await read_until(turn, b"ready")
                    await turn.cancel()
                    await drain(turn)
                assert not pipe.is_open()
