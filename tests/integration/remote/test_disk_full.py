from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path
from typing import NoReturn

import pytest

from remote.errors import SpawnRefused
from remote.follower import Lease
from remote.host_queries import remove_spool
from remote.local import LocalHost
from remote.spool import Exit
from tests.support.needs import need
from tests.support.ssh.laboratory import Lab, drain, eventually, read_until

FILL = 'head -c 3000000 /dev/zero | tr "\\0" x; '


def _cannot(reason: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture
def small_disk(any_lab: Lab) -> Iterator[Lab]:
    """A host whose spools lie on a disk of two megabytes."""
    if os.geteuid() != 0:
        _cannot("only root can mount a small disk")
    any_lab.root.mkdir()
    mount = subprocess.run(
        [need("mount"), "-t", "tmpfs", "-o", "size=2m", "tmpfs", any_lab.root], capture_output=True, check=False
    )
    if mount.returncode:
        _cannot(f"no small disk can be mounted here: {mount.stderr.decode()}")
    try:
        yield any_lab
    finally:
        any_lab.clean_up()
        subprocess.run([need("umount"), "-l", any_lab.root], check=True)


def fill(hog: Path) -> None:
    with hog.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
        while True:
            file.write(bytes(4096))


def reserves(lab: Lab) -> bool:
    """Whether the host's fallocate can set room aside: that of busybox cannot."""
    program = shutil.which("fallocate", path=lab.path)
    return program is not None and not Path(program).resolve().name.startswith("busybox")


async def test_a_prompt_that_does_not_fit_is_refused_and_leaves_no_trace(small_disk: Lab) -> None:
    with pytest.raises(SpawnRefused, match="disk that holds the spool is full") as refusal:
        await small_disk.run(small_disk.sh("cat", stdin=b"p" * 4_000_000))
    assert refusal.value.code == "spool_full"
    assert list(small_disk.root.iterdir()) == []


async def test_a_disk_without_room_for_anything_is_refused(small_disk: Lab) -> None:
    fill(small_disk.root / "hog")
    with pytest.raises(SpawnRefused) as refusal:
        await small_disk.run(small_disk.sh("echo hi"))
    assert refusal.value.code == "spool_full"
    assert [place.name for place in small_disk.root.iterdir()] == ["hog"]


async def test_a_disk_without_room_for_the_end_of_a_turn_is_refused(small_disk: Lab) -> None:
    (small_disk.root / "hog").write_bytes(bytes(1_500_000))
    if not reserves(small_disk):
        assert await small_disk.run(small_disk.sh("echo hi")) == (b"hi\n", Exit(0, "exit"))
        return
    with pytest.raises(SpawnRefused) as refusal:
        await small_disk.run(small_disk.sh("echo hi"))
    assert refusal.value.code == "spool_full"
    assert [place.name for place in small_disk.root.iterdir()] == ["hog"]


async def test_a_start_waits_for_room_and_then_happens_once(small_disk: Lab) -> None:
    hog = small_disk.root / "hog"
    fill(hog)
    waiting = Lease(30, 0.2, waits_for_room=lambda: True)
    running = asyncio.create_task(small_disk.run(small_disk.sh("echo run >>runs; cat runs"), lease=waiting))
    await eventually(lambda: len(small_disk.host.channels) > 2)
    hog.unlink()
    assert await running == (b"run\n", Exit(0, "exit"))


async def test_a_start_that_waits_for_room_gives_up_in_time_or_when_it_is_cancelled(small_disk: Lab) -> None:
    fill(small_disk.root / "hog")
    for answers in (iter([True, False]), repeat(True)):
        lease = Lease(30, 0.2, waits_for_room=lambda answers=answers: next(answers))
        turn = small_disk.follow(small_disk.spool(), small_disk.sh("true"), lease=lease)
        seen = len(small_disk.host.channels)
        entering = asyncio.create_task(turn.__aenter__())
        await eventually(lambda seen=seen: len(small_disk.host.channels) > seen + 1)
        if isinstance(answers, repeat):
            await turn.cancel()
        with pytest.raises(SpawnRefused) as refusal:
            await entering
        assert refusal.value.code == "spool_full"


async def test_output_arrives_though_the_disk_was_full_when_it_was_printed(small_disk: Lab) -> None:
    wait = "echo ready; until [ -e go ]; do sleep 0.05; done"
    output = 'head -c 900000 /dev/zero | tr "\\0" x; echo; echo end'
    spool = small_disk.spool()
    async with small_disk.follow(spool, small_disk.sh(f"{wait}; {output}; echo error >&2; exit 3")) as turn:
        await read_until(turn, b"ready")
        fill(small_disk.root / "hog")
        (small_disk.workspace / "go").touch()
        printed = await drain(turn)
        assert turn.exit == Exit(3, "exit")
        if reserves(small_disk):
            assert printed == b"x" * 900_000 + b"\nend\n"
            assert await turn.stderr_tail() == b"error\n"
            assert small_disk.state(spool, "end")[:3] == ["3", "exit", "marked"]


async def test_the_end_is_told_though_the_disk_was_too_full_to_write_it(small_disk: Lab) -> None:
    spool = small_disk.spool()
    output, end = await small_disk.run(small_disk.sh(FILL + "exit 9"), spool)
    assert output.rstrip(b"\n") == b"x" * len(output.rstrip(b"\n"))
    assert 500_000 < len(output) < 2_200_000
    assert end == Exit(9, "exit")
    assert (await small_disk.run(None, spool))[1] == end
    await small_disk.nothing_left(spool)
    await remove_spool(small_disk.host, spool)
    assert list(small_disk.root.iterdir()) == []


async def test_a_full_disk_stops_neither_heartbeats_nor_a_cancel(small_disk: Lab) -> None:
    script = FILL + "sleep 6; touch held; sleep 60"
    spool = small_disk.spool()
    async with small_disk.follow(spool, small_disk.sh(script), lease=Lease(3, 0.2)) as turn:
        await eventually((small_disk.workspace / "held").exists)
        await turn.cancel()
        await drain(turn)
        assert turn.exit is not None
        assert turn.exit.reason == "cancel"
    await small_disk.nothing_left(spool)


@pytest.mark.parametrize("stdin", [b"", b"prompt", b"p" * 100_000], ids=["none", "small", "large"])
async def test_a_start_that_waits_for_room_does_not_count_as_started(small_disk: Lab, stdin: bytes) -> None:
    fill(small_disk.root / "hog")
    begun: list[bool] = []

    async def starting() -> None:
        begun.append(True)

    turn = small_disk.follow(
        small_disk.spool(), small_disk.sh("cat", stdin=stdin), lease=Lease(30, 0.2, starting=starting)
    )
    with pytest.raises(SpawnRefused) as refusal:
        await turn.__aenter__()
    assert (refusal.value.code, begun, turn.asked) == ("spool_full", [], False)


async def test_a_disk_that_can_hold_no_pipes_is_not_full(any_lab: Lab) -> None:
    tools = any_lab.folder / "tools"
    tools.mkdir()
    (tools / "mkfifo").write_text('#!/bin/sh\necho "mkfifo: $1: Operation not permitted" >&2\nexit 1\n')
    (tools / "mkfifo").chmod(0o755)
    host = LocalHost({"PATH": f"{tools}:{any_lab.path}", "HOME": str(any_lab.home)})
    with pytest.raises(SpawnRefused, match="not permitted") as refusal:
        await any_lab.run(any_lab.sh("cat", live=True), host=host)
    assert refusal.value.code == "spool_unwritable"
    assert list(any_lab.root.iterdir()) == []
