from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import NoReturn

import psutil
import pytest

from remote.backoff import Patience
from remote.errors import HostUnreachable, LineTooLong, SpawnRefused
from remote.follower import Lease
from remote.host_queries import list_spools, read_stderr_tail, remove_spool
from remote.spool import Exit, Spool
from tests.support.needs import need
from tests.support.processes import gone
from tests.support.ssh.laboratory import QUICK, Lab, drain, eventually, read_until
from tests.support.waiting import remove_spools

COUNT = """
import sys, time
for number in range(int(sys.argv[1])):
    print(number, "x" * (number % 300), flush=True)
    time.sleep(float(sys.argv[2]))
"""
WORKER = """
import asyncio, sys
from adapters.command import Command
from remote.follower import Follower
from remote.local import LocalHost
from remote.spool import Spool

async def main(root, id, seal, workspace, *argv):
    host = LocalHost(env={"PATH": "/usr/bin:/bin"})
    async with Follower(host, Spool(root, id, seal), Command(argv, workspace)) as turn:
        async for batch in turn:
            print(batch.end, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


def counted(numbers: int) -> bytes:
    return b"".join(b"%d %s\n" % (number, b"x" * (number % 300)) for number in range(numbers))


async def test_killed_worker_is_followed_by_another_without_a_gap_and_without_a_second_agent(lab: Lab) -> None:
    spool = lab.spool()
    command = lab.sh('echo x >>runs; exec "$@"', sys.executable, "-c", COUNT, "300", "0.003")
    arguments = [spool.root, spool.id, spool.seal, str(lab.workspace), *command.argv]
    worker = subprocess.Popen([sys.executable, "-c", WORKER, *arguments], stdout=subprocess.PIPE, cwd=Path.cwd())
    with worker:
        assert worker.stdout
        ends = [int(worker.stdout.readline()) for _ in range(20)]
        worker.kill()
    assert await lab.run(None, spool, offset=ends[-1]) == (counted(300)[ends[-1] :], Exit(0, "exit"))
    assert await lab.run(command, spool) == (counted(300), Exit(0, "exit"))
    assert (lab.workspace / "runs").read_text() == "x\n"


async def test_a_channel_cut_again_and_again_loses_nothing(any_lab: Lab) -> None:
    spool, received = any_lab.spool(), b""
    async with any_lab.follow(spool, any_lab.python(COUNT, "400", "0.002")) as turn:
        async for batch in turn:
            assert batch.offset == len(received)
            received += b"".join(line + b"\n" for line in batch.lines)
            if len(any_lab.host.channels) * 40 < received.count(b"\n"):
                any_lab.host.cut()
    assert received == counted(400)
    assert turn.exit == Exit(0, "exit")
    assert len(any_lab.host.channels) >= 5
    await any_lab.nothing_left(spool)


async def test_an_attachment_whose_shell_died_alone_is_replaced(any_lab: Lab) -> None:
    command = any_lab.sh("echo begun; while [ ! -e go ]; do sleep 0.05; done; echo end")
    async with any_lab.follow(any_lab.spool(), command) as turn:
        await read_until(turn, b"begun")
        rest = asyncio.create_task(drain(turn))
        os.kill(any_lab.host.shell, signal.SIGKILL)  # its tail goes on, but nobody takes heartbeats
        await eventually(lambda: len(any_lab.host.channels) == 2)
        (any_lab.workspace / "go").touch()
        assert await rest == b"end\n"
    assert turn.exit == Exit(0, "exit")


async def test_lines_that_were_there_before_the_attachment_are_marked_as_replayed(lab: Lab) -> None:
    spool = lab.spool()
    command = lab.sh("echo one; echo two; while [ ! -e go ]; do sleep 0.05; done; echo three")
    async with lab.follow(spool, command) as turn:
        await read_until(turn, b"two")
    async with lab.follow(spool) as turn:
        first = await anext(turn)
        (lab.workspace / "go").touch()
        second = await anext(turn)
    assert (first.offset, first.lines, first.replayed) == (0, [b"one", b"two"], True)
    assert (second.offset, second.lines, second.replayed) == (8, [b"three"], False)


async def test_leaving_detaches_at_once_and_the_turn_goes_on(any_lab: Lab) -> None:
    spool = any_lab.spool()
    async with any_lab.follow(
        spool, any_lab.sh("echo begun; while [ ! -e go ]; do sleep 0.05; done; echo end")
    ) as turn:
        await read_until(turn, b"begun")
        shell = psutil.Process(any_lab.host.shell)
        far_end = [shell, *shell.children(recursive=True)]
        assert len(far_end) == 2  # the follower and its tail
    await eventually(lambda: all(map(gone, far_end)))
    assert any_lab.marked(spool)
    (any_lab.workspace / "go").touch()
    assert await any_lab.run(None, spool, offset=6) == (b"end\n", Exit(0, "exit"))


async def test_a_reconnecting_follower_ends_its_stranded_predecessor(any_lab: Lab) -> None:
    spool = any_lab.spool()
    async with any_lab.follow(
        spool, any_lab.sh("echo begun; while [ ! -e go ]; do sleep 0.05; done; echo end")
    ) as turn:
        await read_until(turn, b"begun")
        stranded = psutil.Process(any_lab.host.shell)
        tail = stranded.children()[0]
        any_lab.host.channels[0].stranded = True
        os.kill(tail.pid, 9)  # wakes the reader, which finds that its channel has ended
        await eventually(lambda: True)
        (any_lab.workspace / "go").touch()
        assert await drain(turn) == b"end\n"
    await eventually(lambda: gone(stranded))


async def test_detaching_wakes_whoever_waits_for_the_next_batch(lab: Lab) -> None:
    async with lab.follow(lab.spool(), lab.sh("echo begun; sleep 60")) as turn:
        await read_until(turn, b"begun")
        waiting = asyncio.create_task(drain(turn))
        await asyncio.sleep(0)
        await turn.detach()
        assert await asyncio.wait_for(waiting, 60) == b""
        assert turn.exit is None


async def test_waiting_for_a_batch_can_be_given_up_and_begun_again(lab: Lab) -> None:
    async with lab.follow(lab.spool(), lab.python(COUNT, "100", "0.005")) as turn:
        received = b""
        while turn.exit is None:
            try:
                async with asyncio.timeout(0.002):
                    received += b"".join(line + b"\n" for line in (await anext(turn)).lines)
            except (TimeoutError, StopAsyncIteration):
                continue
        assert received + await drain(turn) == counted(100)


async def test_a_line_of_twelve_megabytes_arrives(any_lab: Lab) -> None:
    output, end = await any_lab.run(any_lab.python("print('y' * 12_000_000); print('z')"))
    assert output == b"y" * 12_000_000 + b"\nz\n"
    assert end == Exit(0, "exit")


async def test_a_line_beyond_the_cap_is_an_error_and_the_turn_can_be_cancelled(lab: Lab) -> None:
    spool = lab.spool()
    async with lab.follow(
        spool, lab.sh("echo ok; head -c 5000000 /dev/zero; sleep 60"), max_line=1_000_000
    ) as turn:
        with pytest.raises(LineTooLong, match="1000000 bytes") as error:
            await drain(turn)
        assert error.value.offset == 3
        await turn.cancel()
    await lab.nothing_left(spool)


@pytest.mark.parametrize("ending", [b"", b"\n", b"\n\n", b"no newline at the end", b"\0\xff\xfe\0", b"\r\n"])
async def test_output_is_kept_byte_by_byte(any_lab: Lab, ending: bytes) -> None:
    printed = bytes(range(256)) * 10 + b"\nline\n" + ending
    source = "import sys; sys.stdout.buffer.write(bytes.fromhex(sys.argv[1]))"
    spool = any_lab.spool()
    output, _ = await any_lab.run(any_lab.python(source, printed.hex()), spool)
    assert output == printed + (b"" if printed.endswith(b"\n") else b"\n")
    assert await any_lab.run(None, spool) == (output, Exit(0, "exit"))


async def test_a_stream_of_fifty_megabytes_arrives(lab: Lab) -> None:
    output, _ = await lab.run(lab.python("import sys; sys.stdout.write(('x' * 999 + '\\n') * 50_000)"))
    assert output == (b"x" * 999 + b"\n") * 50_000


async def test_three_megabytes_of_stderr_block_nobody(any_lab: Lab) -> None:
    spool = any_lab.spool()
    script = "head -c 3000000 /dev/zero >&2; echo the end >&2; echo done"
    assert await any_lab.run(any_lab.sh(script), spool) == (b"done\n", Exit(0, "exit"))
    tail = await read_stderr_tail(any_lab.host, spool)
    assert len(tail) == 65_536
    assert tail.endswith(b"\0the end\n")


async def test_a_follower_of_busybox_alone_looks_once_a_second(tmp_path: Path) -> None:
    tools, busybox = tmp_path / "tools", need("busybox")
    tools.mkdir()
    for applet in subprocess.check_output([busybox, "--list"], text=True).split():
        (tools / applet).symlink_to(busybox)
    lab = Lab(tmp_path / "lab", str(tools))
    assert await lab.run(lab.sh("echo one; sleep 0.5; echo two")) == (b"one\ntwo\n", Exit(0, "exit"))


async def test_a_host_that_stays_away_is_given_up_after_jittered_tries(lab: Lab) -> None:
    now, delays = 0.0, []

    async def sleep(seconds: float) -> None:
        nonlocal now
        delays.append(seconds)
        now += seconds

    lab.host.refusals = 1_000_000
    patience = Patience(first_delay_s=0.5, longest_delay_s=8.0, give_up_s=120.0)
    with pytest.raises(HostUnreachable, match="host local: refused"):
        await lab.run(lab.sh("true"), patience=patience, clock=lambda: now, sleep=sleep, rng=Random(7))
    assert 120 <= now < 128
    assert all(delay <= min(8.0, 0.5 * 2**number) for number, delay in enumerate(delays))
    assert len(set(delays)) == len(delays)


async def test_a_host_that_does_not_answer_is_unreachable(lab: Lab) -> None:
    patience = Patience(answer_s=0.2, first_delay_s=0.01, longest_delay_s=0.01, give_up_s=0.3)
    slow = Lab(lab.folder / "slow", str(lab.folder))
    (lab.folder / "sh").write_text("#!/bin/sh\nexec /bin/sleep 60\n")
    (lab.folder / "sh").chmod(0o755)
    with pytest.raises(HostUnreachable, match="no answer"):
        await slow.run(slow.sh("true"), patience=patience)


async def test_a_refusal_is_not_tried_again(lab: Lab) -> None:
    with pytest.raises(SpawnRefused):
        await lab.run(lab.command("no-such-agent"))
    assert len(lab.host.channels) == 1


async def test_a_spool_shorter_than_the_offset_is_refused(lab: Lab) -> None:
    spool = lab.spool()
    await lab.run(lab.sh("echo hi"), spool)
    with pytest.raises(SpawnRefused) as refusal:
        await lab.run(None, spool, offset=1_000_000)
    assert refusal.value.code == "spool_shortened"


async def test_a_spool_removed_under_its_follower_is_missing(lab: Lab) -> None:
    spool = lab.spool()
    async with lab.follow(spool, lab.sh("echo begun; sleep 60"), patience=QUICK) as turn:
        await read_until(turn, b"begun")
        remove_spools(Path(spool.path))
        with pytest.raises(SpawnRefused) as refusal:
            await drain(turn)
    assert refusal.value.code == "spool_missing"


async def test_a_detach_is_heard_while_the_host_is_out_of_reach(lab: Lab) -> None:
    lab.host.refusals = 10**6
    turn = lab.follow(lab.spool(), lab.sh("echo out"), patience=Patience(first_delay_s=3600, longest_delay_s=3600))
    entering = asyncio.create_task(turn.__aenter__())
    await eventually(lambda: lab.host.refusals < 10**6)
    await turn.detach()
    assert await entering is turn
    assert [batch async for batch in turn] == []
    assert (turn.exit, turn.asked, turn.attached) == (None, False, False)


async def test_a_detach_is_heard_while_a_channel_is_being_opened(lab: Lab) -> None:
    opening = asyncio.Event()

    class Slow:
        name, path, rest_s = "slow", "", 0.0

        async def open_channel(self) -> NoReturn:
            opening.set()
            await asyncio.Event().wait()
            raise AssertionError("never")

    turn = lab.follow(lab.spool(), lab.sh("echo out"), host=Slow())
    entering = asyncio.create_task(turn.__aenter__())
    await opening.wait()
    await turn.detach()
    await entering
    assert turn.exit is None
    assert not turn.asked


async def test_nothing_is_started_before_it_is_permitted(lab: Lab) -> None:
    permitted = False
    asked = asyncio.Event()

    def may_start() -> bool:
        asked.set()
        return permitted

    running = asyncio.create_task(lab.run(lab.sh("echo out"), lease=Lease(30, 0.2, may_start=may_start)))
    await asked.wait()
    assert not lab.host.channels
    permitted = True
    assert await running == (b"out\n", Exit(0, "exit"))


async def test_a_follower_that_may_not_hold_the_lease_lets_it_run_out(any_lab: Lab) -> None:
    held = True
    lease = Lease(4, 0.2, may_hold=lambda: held)
    async with any_lab.follow(any_lab.spool(), any_lab.sh("echo out; sleep 3600"), lease=lease) as turn:
        await read_until(turn, b"out")
        held = False
        await drain(turn)
        assert turn.exit is not None
        assert turn.exit.reason == "lease"


async def test_heartbeats_hold_the_lease(any_lab: Lab) -> None:
    output, end = await any_lab.run(any_lab.sh("echo out; sleep 7; echo more"), lease=Lease(3, 0.2))
    assert (output, end) == (b"out\nmore\n", Exit(0, "exit"))


async def test_workspace_must_lie_below_an_allowed_directory(any_lab: Lab) -> None:
    allowed = any_lab.folder / "allowed"
    (allowed / "inner").mkdir(parents=True)
    (allowed / "way out").symlink_to(any_lab.workspace)
    (any_lab.folder / "way in").symlink_to(allowed)
    roots = (str(any_lab.folder / "missing"), str(any_lab.folder / "way in"))
    for good in (allowed, allowed / "inner", any_lab.folder / "way in" / "inner"):
        output, _ = await any_lab.run(any_lab.sh("echo fine", cwd=str(good)), workspace_roots=roots)
        assert output == b"fine\n"
    for bad in (any_lab.workspace, allowed / "way out", allowed / "..", any_lab.folder):
        with pytest.raises(SpawnRefused) as refusal:
            await any_lab.run(any_lab.sh("echo bad", cwd=str(bad)), workspace_roots=roots)
        assert refusal.value.code == "workspace_not_allowed"


async def test_spool_below_the_home_directory_of_the_host(any_lab: Lab) -> None:
    spool = Spool("~/deep/spools", "t1", "seal")
    assert await any_lab.run(any_lab.sh("echo $RUNTURN_SPOOL"), spool) == (
        f"{any_lab.home}/deep/spools/t1\n".encode(),
        Exit(0, "exit"),
    )
    assert [state.id for state in await list_spools(any_lab.host, "~/deep/spools")] == ["t1"]
    assert await read_stderr_tail(any_lab.host, spool) == b""
    await remove_spool(any_lab.host, spool)
    assert not list((any_lab.home / "deep/spools").iterdir())
