"""Agents in namespaces of their own: nothing gets out, and nothing outlives the end."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapters.isolation import Isolation
from remote.errors import SpawnRefused
from remote.shell import library
from remote.spool import Exit
from tests.integration.remote.conftest import opened
from tests.support.needs import need, need_namespaces
from tests.support.ssh.laboratory import Lab, drain, read_until

# What carries no mark, leads its own session, and has no parent left. It keeps the pipe open.
DAEMON = """(setsid env -i sh -c 'exec >"$0"; sleep 600' "$1" &)"""
# Hands over to a child every millisecond, without an environment.
CHAIN = """
import os, sys
pipe = os.open(sys.argv[1], os.O_WRONLY)
if os.fork() == 0:
    os.environ.clear()
    while True:
        os.write(pipe, b".")
        if os.fork(): os._exit(0)
        os.setsid()
os.write(1, b"ready\\n")
sys.stdin.read()
os.wait()
"""
# unshare as it fails, and as it works only with a user namespace.
WITHOUT = "echo 'unshare failed: Operation not permitted' >&2; exit 1"
UNPRIVILEGED = """case $* in *--user*) exec {unshare} "$@" ;; esac; {without}"""


@pytest.fixture(params=["unshare", "unshare --user", "bwrap"])
def contained(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lab]:
    """A host for each way to make a namespace."""
    need_namespaces()
    folder = tmp_path / "programs"
    folder.mkdir()
    if request.param != "unshare":
        user = request.param == "unshare --user"
        script = UNPRIVILEGED.format(unshare=need("unshare"), without=WITHOUT) if user else WITHOUT
        _shell_program(folder / "unshare", script)
    if request.param == "bwrap":
        need("bwrap")
    yield from opened(Lab(tmp_path / "lab", f"{folder}:/usr/bin:/bin", isolation=Isolation.NAMESPACE))


@pytest.fixture
def unable(tmp_path: Path) -> Iterator[Lab]:
    """A host that can make no namespace."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for name in ("unshare", "bwrap"):
        _shell_program(folder / name, WITHOUT.replace("unshare", name))
    yield from opened(Lab(tmp_path / "lab", f"{folder}:/usr/bin:/bin", isolation=Isolation.NAMESPACE))


async def test_daemon_without_environment_ends_with_its_agent(contained: Lab, tmp_path: Path) -> None:
    pipe = _Pipe(tmp_path / "pipe")
    agent = contained.sh(f"{DAEMON}; sleep 0.3; exit 7", str(pipe.path))
    assert await contained.run(agent) == (b"", Exit(7, "exit"))
    assert pipe.is_over()


async def test_chain_of_processes_ends_with_its_agent(contained: Lab, tmp_path: Path) -> None:
    pipe = _Pipe(tmp_path / "pipe")
    async with contained.follow(contained.spool(), contained.python(CHAIN, str(pipe.path))) as turn:
        await read_until(turn, b"ready")
        await turn.cancel()
        await drain(turn)
    assert pipe.is_over()


async def test_agent_sees_no_process_but_its_own(contained: Lab) -> None:
    output, _ = await contained.run(contained.sh("cd /proc && echo [0-9]*; kill -0 $PPID && echo $PPID"))
    seen, parent = output.decode().splitlines()
    assert parent == "1"
    assert len(seen.split()) == 2


async def test_agent_that_kills_all_it_can_ends_its_own_turn_only(contained: Lab) -> None:
    killer = contained.sh("(sleep 600; echo alive) & kill -KILL -1; wait; exit 5")
    assert await contained.run(killer) == (b"", Exit(5, "exit"))


@pytest.mark.parametrize("victim", ["wall", "init"])
async def test_turn_ends_with_what_contains_it(contained: Lab, tmp_path: Path, victim: str) -> None:
    pipe, spool = _Pipe(tmp_path / "pipe"), contained.spool()
    async with contained.follow(spool, contained.sh(f"{DAEMON}; echo ready; sleep 600", str(pipe.path))) as turn:
        await read_until(turn, b"ready")
        wall = contained.pid(spool, "agent")
        os.kill(wall if victim == "wall" else _first_child(wall), signal.SIGKILL)
        await drain(turn)
        assert turn.exit in (Exit(137, "exit"), Exit(1, "exit"))  # unshare cannot die of SIGKILL itself
    assert pipe.is_over()
    await contained.nothing_left(spool)


async def test_ladder_reaches_the_agent_and_not_its_init(contained: Lab) -> None:
    agent = contained.sh("trap 'echo interrupted; exit 3' INT; echo ready; while :; do sleep 0.1; done")
    async with contained.follow(contained.spool(), agent) as turn:
        await read_until(turn, b"ready")
        await turn.cancel()
        assert await drain(turn) == b"interrupted\n"
        assert turn.exit == Exit(3, "cancel")


async def test_what_an_agent_leaves_may_finish_on_term(contained: Lab, tmp_path: Path) -> None:
    done = tmp_path / "done"
    left = f"(trap 'echo done >{done}; exit' TERM; echo ready; while :; do sleep 0.1; done) & sleep 0.3"
    await contained.run(contained.sh(left))
    assert done.read_text() == "done\n"


async def test_host_that_cannot_isolate_is_refused_with_the_reason(unable: Lab) -> None:
    with pytest.raises(SpawnRefused, match="Operation not permitted") as refused:
        await unable.run(unable.sh("echo ran"))
    assert refused.value.code == "isolation_unavailable"
    assert not list(unable.root.glob("*"))


async def test_host_that_cannot_isolate_runs_what_need_not_be(unable: Lab) -> None:
    assert await unable.run(unable.sh("echo ran"), isolation=None) == (b"ran\n", Exit(0, "exit"))


def test_init_outside_a_namespace_signals_nobody() -> None:
    script = f'{library("containment")}\nexec sh -c "$init" init true'
    assert subprocess.run(["sh", "-c", script], check=False).returncode == 126


class _Pipe:
    """A pipe that what is to end holds open for writing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path)
        self._end = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    def is_over(self) -> bool:
        """Whether it was opened, and nobody holds it any more."""
        os.set_blocking(self._end, True)
        while os.read(self._end, 65536):
            pass
        return True


def _first_child(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def _shell_program(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
