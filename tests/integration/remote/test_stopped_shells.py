"""Shells of a turn that were stopped or killed: another one does their work."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from remote.follower import Lease
from remote.local import LocalHost
from remote.spool import Exit, Spool
from tests.support.needs import need
from tests.support.processes import command_of, gone_pid
from tests.support.ssh.laboratory import Lab, drain, eventually, read_until
from tests.support.waiting import remove_spools, until

SHORT = Lease(lease_s=6, beat_s=0.2)  # the watcher looks every second
WORKING = "echo ready; while :; do sleep 0.1; done"


@pytest.fixture
def spool(any_lab: Lab) -> Iterator[Spool]:
    """A spool whose stopped shells are ended after the test."""
    spool = any_lab.spool()
    yield spool
    for pid in (any_lab.pid(spool, name) for name in ("supervisor", "watcher") if any_lab.state(spool, name)):
        if not gone_pid(pid):
            os.kill(pid, signal.SIGKILL)


def guard(lab: Lab, spool: Spool) -> int:
    """The pid of the watcher's guard: its child that is a shell like itself."""

    def only_shell() -> int | None:
        try:
            children = psutil.Process(lab.pid(spool, "watcher")).children()
        except psutil.NoSuchProcess:  # its guard is taking its place
            return None
        shells = [child.pid for child in children if spool.path in command_of(child)]
        return shells[0] if len(shells) == 1 else None  # one that is about to become `sleep` still looks like it

    return until(only_shell, "the watcher to have one guard")


async def test_stopped_supervisor_does_not_keep_a_turn_from_its_end(any_lab: Lab, spool: Spool) -> None:
    async with any_lab.follow(spool, any_lab.sh(WORKING), lease=SHORT) as turn:
        await read_until(turn, b"ready")
        os.kill(any_lab.pid(spool, "supervisor"), signal.SIGSTOP)
        await turn.cancel()
        await drain(turn)
        assert turn.exit is not None
        assert turn.exit.reason == "cancel"
    await any_lab.nothing_left(spool)


async def test_agent_that_ends_under_a_stopped_supervisor_ends_its_turn(any_lab: Lab, spool: Spool) -> None:
    script = "echo ready; while [ ! -e go ]; do sleep 0.1; done; exit 7"
    async with any_lab.follow(spool, any_lab.sh(script), lease=SHORT) as turn:
        await read_until(turn, b"ready")
        os.kill(any_lab.pid(spool, "supervisor"), signal.SIGSTOP)
        (any_lab.workspace / "go").touch()
        await drain(turn)
        assert turn.exit == Exit(7, "exit")
    await any_lab.nothing_left(spool)


@pytest.mark.parametrize("blow", [signal.SIGSTOP, signal.SIGKILL])
async def test_follower_replaces_a_watcher_that_does_not_work(
    any_lab: Lab, spool: Spool, blow: signal.Signals
) -> None:
    async with any_lab.follow(spool, any_lab.sh(WORKING), lease=SHORT) as turn:
        await read_until(turn, b"ready")
        os.kill(guard(any_lab, spool), signal.SIGKILL)
        os.kill(any_lab.pid(spool, "watcher"), blow)
        await turn.cancel()
        await drain(turn)
        assert turn.exit is not None
        assert turn.exit.reason == "cancel"
    await any_lab.nothing_left(spool)


@pytest.mark.parametrize("blow", [signal.SIGSTOP, signal.SIGKILL])
async def test_guard_takes_the_watch_where_nobody_follows(
    any_lab: Lab, spool: Spool, blow: signal.Signals
) -> None:
    async with any_lab.follow(spool, any_lab.sh(WORKING), lease=SHORT) as turn:
        await read_until(turn, b"ready")
        guard(any_lab, spool)  # it is there
        os.kill(any_lab.pid(spool, "watcher"), blow)
    await eventually(lambda: any_lab.state(spool, "end"))
    assert any_lab.state(spool, "end")[1] == "lease"
    await any_lab.nothing_left(spool)


@pytest.mark.parametrize("blow", [signal.SIGSTOP, signal.SIGKILL])
async def test_watcher_replaces_a_guard_that_does_not_work(
    any_lab: Lab, spool: Spool, blow: signal.Signals
) -> None:
    async with any_lab.follow(spool, any_lab.sh(WORKING), lease=SHORT) as turn:
        await read_until(turn, b"ready")
        first = guard(any_lab, spool)
        os.kill(first, blow)
        # The first time, a stopped one is continued.
        await eventually(lambda: _struck(first, blow) or guard(any_lab, spool) != first)
        os.kill(any_lab.pid(spool, "watcher"), signal.SIGKILL)
    await eventually(lambda: any_lab.state(spool, "end"))
    await any_lab.nothing_left(spool)


async def test_guard_ends_what_is_left_of_a_spool_that_was_removed(any_lab: Lab, spool: Spool) -> None:
    async with any_lab.follow(spool, any_lab.sh(WORKING), lease=SHORT) as turn:
        await read_until(turn, b"ready")
        guard(any_lab, spool)
    os.kill(any_lab.pid(spool, "watcher"), signal.SIGKILL)
    remove_spools(Path(spool.path))
    await any_lab.nothing_left(spool)


async def test_killed_tail_does_not_hide_the_end(any_lab: Lab, spool: Spool) -> None:
    script = "echo ready; while [ ! -e go ]; do sleep 0.1; done; exit 7"
    async with any_lab.follow(spool, any_lab.sh(script), lease=SHORT) as turn:
        await read_until(turn, b"ready")
        follower = psutil.Process(any_lab.host.shell)
        os.kill(follower.pid, signal.SIGSTOP)
        for child in follower.children():
            os.kill(child.pid, signal.SIGKILL)
        (any_lab.workspace / "go").touch()
        await eventually(lambda: any_lab.state(spool, "end"))
        os.kill(follower.pid, signal.SIGCONT)
        async with asyncio.timeout(120):
            await drain(turn)
        assert turn.exit == Exit(7, "exit")


async def test_killed_tail_is_not_the_end_of_a_finished_turn(any_lab: Lab, spool: Spool) -> None:
    output = await any_lab.run(any_lab.sh("echo one; echo two"), spool)
    tools = any_lab.folder / "tools"
    tools.mkdir()
    strike = f"if mkdir {tools}/struck 2>/dev/null; then printf on; kill -KILL $$; fi"
    (tools / "tail").write_text(f'#!/bin/sh\n{strike}\nexec {need("tail")} "$@"\n')
    (tools / "tail").chmod(0o755)
    host = LocalHost({"PATH": f"{tools}:{any_lab.path}", "HOME": str(any_lab.home)})
    assert await any_lab.run(None, spool, host=host) == output
    assert (tools / "struck").exists()


async def test_stopped_sleep_of_the_watcher_does_not_prolong_a_lease(any_lab: Lab, spool: Spool) -> None:
    async with any_lab.follow(spool, any_lab.sh(WORKING), lease=SHORT) as turn:
        await read_until(turn, b"ready")
        watcher = psutil.Process(any_lab.pid(spool, "watcher"))
        await eventually(lambda: _sleeper(watcher) is not None)
        sleeper = _sleeper(watcher)
        assert sleeper is not None
        os.kill(sleeper, signal.SIGSTOP)
    await eventually(lambda: any_lab.state(spool, "end"))
    assert any_lab.state(spool, "end")[1] == "lease"
    await any_lab.nothing_left(spool)


def _struck(pid: int, blow: signal.Signals) -> None:
    if not gone_pid(pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, blow)


def _sleeper(watcher: psutil.Process) -> int | None:
    naps = [child.pid for child in watcher.children() if command_of(child).partition(" ")[0].endswith("sleep")]
    return naps[0] if naps else None
