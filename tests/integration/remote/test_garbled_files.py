"""Files of a spool with garbage in them, or that are no files: a turn ends all the same."""

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
from remote.host_queries import list_spools, remove_spool
from remote.spool import Spool
from tests.integration.remote.conftest import HOSTS
from tests.support.ssh.laboratory import Lab, drain, eventually, read_until

SHORT = Lease(lease_s=6, beat_s=0.2)
FILES = ("turn", "said", "writer", "watcher", "heartbeat", "supervisor", "agent", "peak", "limits")


def garbage() -> Iterator[tuple[str, str, str]]:
    """Yield host, file and words: what a shell may evaluate on each host, other words on one of them in turn."""
    for number, file in enumerate(FILES):
        yield from ((host, file, "a[$(touch${IFS}RUN)]") for host in HOSTS)
        for place, words in enumerate(("- - -", "", "9" * 30, "08")):
            yield HOSTS[(number + place) % len(HOSTS)], file, words


@pytest.mark.parametrize(("any_lab", "file", "words"), [*garbage()], indirect=["any_lab"])
async def test_garbage_in_a_file_neither_runs_nor_keeps_a_turn_from_its_end(
    any_lab: Lab, file: str, words: str
) -> None:
    spool = any_lab.spool()
    script = "echo ready; while [ ! -e go ]; do sleep 0.1; done; exit 3"
    async with any_lab.follow(spool, any_lab.sh(script), lease=SHORT) as turn:
        await read_until(turn, b"ready")
        watcher = psutil.Process(any_lab.pid(spool, "watcher"))
        shells = [watcher, *watcher.children()]
        words = words.replace("RUN", str(any_lab.folder / "run"))
        Path(spool.path, file).write_text(f"{words} {words}\n")
        for shell in shells:
            with contextlib.suppress(ProcessLookupError):  # one may be a sleep that has ended
                os.kill(shell.pid, signal.SIGKILL)
        any_lab.host.cut()  # everything is read anew
        draining = asyncio.create_task(drain(turn))
        await eventually(lambda: draining.done() or _watched(any_lab, spool, watcher.pid))
        (any_lab.workspace / "go").touch()
        await draining
        assert turn.exit is not None
    assert not (any_lab.folder / "run").exists()
    await any_lab.nothing_left(spool)


@pytest.mark.parametrize(
    ("blow", "file"),
    [
        *[("mkfifo", file) for file in ("events", "end", "reason", "heartbeat", "supervisor", "agent", "turn")],
        ("ln -s /dev/zero", "events"),
        ("mkdir", "reason"),
    ],
)
async def test_what_is_no_file_blocks_no_shell(any_lab: Lab, blow: str, file: str) -> None:
    spool = any_lab.spool()
    wait = "echo ready; until [ -e go ]; do sleep 0.05; done"
    strike = f'cd "$RUNTURN_SPOOL" && rm -f {file} && {blow} {file}; : >struck; sleep 300'
    async with any_lab.follow(spool, any_lab.sh(f"{wait}; {strike}"), lease=SHORT) as turn:
        await read_until(turn, b"ready")  # the output is being read
        (any_lab.workspace / "go").touch()
        await eventually(Path(spool.path, "struck").exists)  # its output may be what was struck
        await turn.cancel()
        async with asyncio.timeout(120):
            await drain(turn)
        assert turn.exit is not None
        await any_lab.nothing_left(spool)
        assert not any(state.alive for state in await list_spools(any_lab.host, spool.root))
    await remove_spool(any_lab.host, spool)  # no heartbeat comes in between
    assert not Path(spool.path).exists()


def _watched(lab: Lab, spool: Spool, former: int) -> bool:
    """Return whether another watcher has begun: it has its guard, a shell like itself."""
    signature = lab.state(spool, "watcher")
    if not signature or not signature[0].isdigit() or signature[0] == str(former):
        return False
    try:
        return any(spool.path in each.cmdline() for each in psutil.Process(int(signature[0])).children())
    except psutil.Error:
        return False
