from __future__ import annotations

import asyncio
import os
import signal
import statistics
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from adapters.command import Signal
from remote.errors import HostUnreachable
from remote.follower import Lease
from remote.shell import library
from remote.spool import Exit
from tests.support.ssh.laboratory import GENTLE, QUICK, Lab, drain, eventually, read_until
from tests.support.waiting import remove_spools

SHORT = Lease(lease_s=4, beat_s=0.2)

AWAIT_GO = "until [ -e go ]; do sleep 0.05; done"
# Prints "ready", and "result" when it is interrupted.
COOPERATIVE = """
import os, signal, sys, time
def leave(number, frame):
    os.write(1, b"result\\n")
    sys.exit(0)
signal.signal(signal.SIGINT, leave)
os.write(1, b"ready\\n")
while True: time.sleep(60)
"""
# Starts one child of each kind that is hard to end, then waits, or leaves at once.
FAMILY = """
import os, signal, subprocess, sys, time
reads, writes = os.pipe()
def child(detach, *deaf):
    if child := os.fork():
        if detach == "daemon": os.waitpid(child, 0)
        return
    if detach: os.setsid()
    if detach == "daemon" and os.fork(): os._exit(0)
    for number in deaf: signal.signal(number, signal.SIG_IGN)
    os.write(1, b"%d\\n" % os.getpid())
    os.write(writes, b".")
    while True: time.sleep(60)
child("")
child("session", signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
child("daemon", signal.SIGHUP)
for _ in range(3): os.read(reads, 1)
if sys.argv[1] == "leave": sys.exit(5)
print("ready", flush=True)
time.sleep(60)
"""
# Has a name of its choice.
NAMED = """
import ctypes, os, sys, time
ctypes.CDLL(None).prctl(15, bytes.fromhex(sys.argv[1]), 0, 0, 0)
os.write(1, b"ready\\n")
time.sleep(60)
"""
# Deaf to all but KILL.
STUBBORN = """
import os, signal, time
for number in (signal.SIGINT, signal.SIGTERM): signal.signal(number, lambda *_: os.write(1, b"no\\n"))
os.write(1, b"ready\\n")
while True: time.sleep(60)
"""


async def test_a_cancelled_agent_may_leave_by_itself_on_int(any_lab: Lab) -> None:
    spool = any_lab.spool()
    slow = Lease(1200, 0.2)  # its watcher looks every 200 seconds
    async with any_lab.follow(spool, any_lab.python(COOPERATIVE), lease=slow) as turn:
        await read_until(turn, b"ready")
        begun = time.monotonic()
        await turn.cancel()
        assert await drain(turn) == b"result\n"
        assert turn.exit == Exit(0, "cancel")
        assert time.monotonic() - begun < 100  # at once, not at the watcher's next tick
    await any_lab.nothing_left(spool)


async def test_a_cancel_ends_the_whole_family(any_lab: Lab) -> None:
    spool = any_lab.spool()
    async with any_lab.follow(spool, any_lab.python(FAMILY, "stay")) as turn:
        await read_until(turn, b"ready")
        assert len(any_lab.marked(spool)) >= 4  # the family, and what contains it
        await turn.cancel()
        await drain(turn)
        assert turn.exit == Exit(130, "cancel")
        assert any_lab.marked(spool) == []  # already, when the end is told
    await any_lab.nothing_left(spool)


async def test_an_agent_that_leaves_children_behind_ends_with_them(any_lab: Lab) -> None:
    spool = any_lab.spool()
    output, end = await any_lab.run(any_lab.python(FAMILY, "leave"), spool)
    assert len(output.split()) == 3
    assert end == Exit(5, "exit")
    assert any_lab.marked(spool) == []
    await any_lab.nothing_left(spool)


async def test_the_ladder_is_climbed_to_its_end(any_lab: Lab) -> None:
    stop = (Signal("INT", 0.3), Signal("TERM", 0.3), Signal("KILL", 5.0))
    async with any_lab.follow(any_lab.spool(), any_lab.python(STUBBORN, stop=stop)) as turn:
        await read_until(turn, b"ready")
        await turn.cancel()
        assert await drain(turn) == b"no\nno\n"
        assert turn.exit == Exit(137, "cancel")


async def test_an_agent_is_ended_whatever_it_calls_itself(any_lab: Lab) -> None:
    for name in (b"a\nb", b") R 1 2 3\n", b"a) b"):
        async with any_lab.follow(any_lab.spool(), any_lab.python(NAMED, name.hex())) as turn:
            await read_until(turn, b"ready")
            await turn.cancel()
            await drain(turn)
            assert turn.exit == Exit(130, "cancel")


async def test_int_is_for_the_agent_alone(lab: Lab) -> None:
    tool = "trap 'echo int' INT; trap 'echo term; exit' TERM; echo tool; : >up; while :; do sleep 0.05; done"
    agent = (
        """trap 'echo bye; exit 3' INT; setsid sh -c "$1" & until [ -e up ]; do sleep 0.05; done; echo ready; """
        "while :; do sleep 0.05; done"
    )
    async with lab.follow(lab.spool(), lab.sh(agent, tool)) as turn:
        await read_until(turn, b"ready")
        await turn.cancel()
        assert await drain(turn) == b"bye\nterm\n"
        assert turn.exit == Exit(3, "cancel")


async def test_a_cancel_is_one_interrupt_however_often_it_is_asked_for(lab: Lab) -> None:
    source = COOPERATIVE.replace("sys.exit(0)", "time.sleep(1); sys.exit(0)")
    async with lab.follow(lab.spool(), lab.python(source)) as turn:
        await read_until(turn, b"ready")
        for _ in range(3):
            await turn.cancel()
        lab.host.cut()
        assert await drain(turn) == b"result\n"
        assert turn.exit == Exit(0, "cancel")


async def test_a_cancel_right_after_the_start_is_not_lost(any_lab: Lab) -> None:
    async def start_and_cancel(pause: int) -> Exit | None:
        async with any_lab.follow(any_lab.spool(), any_lab.command("sleep", "60"), lease=Lease(1200, 5)) as turn:
            await asyncio.sleep(pause / 1000)
            await turn.cancel()
            await drain(turn)
            return turn.exit

    begun = time.monotonic()
    for pause in range(12):
        end = await start_and_cancel(pause)
        assert end is not None
        assert (end.reason, end.code in {130, 143}) == ("cancel", True)
    assert time.monotonic() - begun < 100  # as above


async def test_a_cancel_without_a_channel_is_asked_for_by_the_next_one(lab: Lab) -> None:
    async with lab.follow(lab.spool(), lab.python(COOPERATIVE)) as turn:
        await read_until(turn, b"ready")
        lab.host.refusals = 3
        lab.host.cut()
        await turn.cancel()
        assert await drain(turn) == b"result\n"
        assert turn.exit == Exit(0, "cancel")


async def test_a_turn_that_nobody_follows_ends_with_all_its_descendants(any_lab: Lab) -> None:
    spool = any_lab.spool()
    async with any_lab.follow(spool, any_lab.python(FAMILY, "stay"), lease=SHORT) as turn:
        await read_until(turn, b"ready")
    await any_lab.nothing_left(spool)
    _, end = await any_lab.run(None, spool)
    assert end == Exit(130, "lease")


async def test_heartbeats_hold_the_lease(lab: Lab) -> None:
    output, end = await lab.run(lab.sh("echo begun; sleep 7; echo end"), lease=Lease(3, 0.2))
    assert (output, end) == (b"begun\nend\n", Exit(0, "exit"))


async def test_a_lost_link_within_the_lease_ends_nothing(lab: Lab) -> None:
    async with lab.follow(lab.spool(), lab.sh("echo begun; sleep 2; echo end"), lease=Lease(6, 0.2)) as turn:
        await read_until(turn, b"begun")
        lab.host.refusals = 8
        lab.host.cut()
        assert await drain(turn) == b"end\n"
        assert turn.exit == Exit(0, "exit")


async def test_a_killed_supervisor_is_told_and_its_agent_ended(any_lab: Lab) -> None:
    spool = any_lab.spool()
    async with any_lab.follow(spool, any_lab.python(COOPERATIVE), lease=SHORT) as turn:
        await read_until(turn, b"ready")
        any_lab.kill(spool, "supervisor")
        assert await drain(turn) == b"result\n"
        assert turn.exit == Exit(None, "lost")
    await any_lab.nothing_left(spool)


async def test_a_killed_supervisor_that_nobody_follows_leaves_nothing_behind(lab: Lab) -> None:
    spool = lab.spool()
    async with lab.follow(spool, lab.python(FAMILY, "stay"), lease=Lease(6, 1)) as turn:
        await read_until(turn, b"ready")
    lab.kill(spool, "supervisor")
    await lab.nothing_left(spool)
    assert (await lab.run(None, spool))[1] == Exit(None, "lost")


async def test_a_turn_survives_its_watcher_and_is_watched_again(any_lab: Lab) -> None:
    spool = any_lab.spool()
    async with any_lab.follow(spool, any_lab.python(COOPERATIVE), lease=SHORT) as turn:
        await read_until(turn, b"ready")
        first = any_lab.pid(spool, "watcher")
        any_lab.kill(spool, "watcher")
        await eventually(lambda: any_lab.pid(spool, "watcher") != first)
    await any_lab.nothing_left(spool)
    assert await any_lab.run(None, spool) == (b"ready\nresult\n", Exit(0, "lease"))


async def test_a_watcher_that_cannot_read_who_watches_goes_on_watching(any_lab: Lab) -> None:
    spool = any_lab.spool()
    async with any_lab.follow(spool, any_lab.sh("echo begun; sleep 60"), lease=SHORT) as turn:
        await read_until(turn, b"begun")
        any_lab.pid(spool, "watcher")  # it has signed
        Path(spool.path, "watcher").write_text(" " * 80 + "\n")
    await any_lab.nothing_left(spool)
    assert any_lab.state(spool, "end")[1] == "lease"


async def test_a_spool_that_cannot_be_read_for_a_while_is_not_missing(any_lab: Lab) -> None:
    spool = any_lab.spool()
    async with any_lab.follow(spool, any_lab.sh("echo begun; while [ ! -e go ]; do sleep 0.05; done")) as turn:
        await read_until(turn, b"begun")
    for name in ("turn", "events"):
        hidden = Path(spool.path, name).rename(any_lab.folder / name)
        with pytest.raises(HostUnreachable):
            await any_lab.run(None, spool, patience=replace(QUICK, enter_s=1.0))
        hidden.rename(Path(spool.path, name))
    (any_lab.workspace / "go").touch()
    assert await any_lab.run(None, spool) == (b"begun\n", Exit(0, "exit"))


async def test_a_turn_without_its_watcher_ends_in_order(lab: Lab) -> None:
    spool = lab.spool()
    async with lab.follow(spool, lab.sh(f"echo begun; {AWAIT_GO}; exit 4")) as turn:
        await read_until(turn, b"begun")
        lab.kill(spool, "watcher")
        (lab.workspace / "go").touch()
        await drain(turn)
        assert turn.exit == Exit(4, "exit")
    await lab.nothing_left(spool)


async def test_a_turn_whose_supervisor_and_watcher_were_killed_is_lost(any_lab: Lab) -> None:
    spool = any_lab.spool()
    async with any_lab.follow(spool, any_lab.python(COOPERATIVE)) as turn:
        await read_until(turn, b"ready")
        any_lab.kill(spool, "supervisor", "watcher")
        assert await drain(turn) == b"result\n"
        assert turn.exit == Exit(None, "lost")
        assert any_lab.marked(spool) == []
    await any_lab.nothing_left(spool)


async def test_a_turn_killed_to_the_last_process_is_lost_to_several_followers_alike(lab: Lab) -> None:
    spool = lab.spool()
    async with lab.follow(spool, lab.python(COOPERATIVE)) as turn:
        await read_until(turn, b"ready")
    lab.kill(spool, "supervisor", "watcher", "agent")
    ends = await asyncio.gather(*(lab.run(None, spool) for _ in range(4)))
    assert set(ends) == {(b"ready\n", Exit(None, "lost"))}
    await lab.nothing_left(spool)
    assert Path(spool.path, "events").read_bytes().count(b'"lost"') == 1


# Each shell takes its time between looking for an end and recording one.
SEVERAL_WATCHERS = r"""
spool=$1 seal=secret
make_marker() { sleep 0.3; marker=lost; }
for each in 1 2 3 4 5 6; do
    (await_first; finish - lost) &
done
wait
"""


@pytest.mark.parametrize("killed", [False, True], ids=["alive", "the first one was killed"])
def test_end_that_several_watchers_would_record_is_recorded_once(tmp_path: Path, killed: bool) -> None:
    for name in ("turn", "end", "peak", "events"):
        (tmp_path / name).touch()
    if killed:
        (tmp_path / "lost").touch()
    script = library("state", "processes", "watcher") + SEVERAL_WATCHERS
    subprocess.run(["sh", "-c", script, "sh", str(tmp_path)], check=True, timeout=120)
    assert (tmp_path / "end").read_text().split() == ["-", "lost", "marked", "-", "-", "secret"]
    assert killed or (tmp_path / "events").read_text() == "\nlost\n"


async def test_after_a_reboot_a_turn_is_lost_and_whoever_has_its_numbers_is_left_alone(lab: Lab) -> None:
    spool = lab.spool()
    async with lab.follow(spool, lab.python(COOPERATIVE)) as turn:
        await read_until(turn, b"ready")
    lab.kill(spool, "supervisor", "watcher", "agent")
    innocent = await asyncio.create_subprocess_exec("sleep", "60", start_new_session=True)
    started = Path(f"/proc/{innocent.pid}/stat").read_text().split(") ")[1].split()[19]
    for name in ("supervisor", "watcher", "agent"):
        Path(spool.path, name).write_text(f"{innocent.pid} {started}".ljust(80) + "\n")
    description = Path(spool.path, "turn")
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    description.write_text(description.read_text().replace(boot, "x" * len(boot)))
    ends = await asyncio.gather(*(lab.run(None, spool) for _ in range(3)))
    assert set(ends) == {(b"ready\n", Exit(None, "lost"))}
    assert innocent.returncode is None
    innocent.kill()
    await innocent.wait()


async def test_a_number_given_to_another_process_is_not_the_agent(lab: Lab) -> None:
    spool = lab.spool()
    async with lab.follow(spool, lab.python(COOPERATIVE)) as turn:
        await read_until(turn, b"ready")
    lab.kill(spool, "supervisor", "watcher", "agent")
    innocent = await asyncio.create_subprocess_exec("sleep", "60", start_new_session=True)
    for name in ("supervisor", "watcher", "agent"):
        Path(spool.path, name).write_text(f"{innocent.pid} 1".ljust(80) + "\n")
    assert (await lab.run(None, spool))[1] == Exit(None, "lost")
    assert innocent.returncode is None
    innocent.kill()
    await innocent.wait()


async def test_an_agent_whose_spool_was_removed_is_ended(lab: Lab) -> None:
    spool = lab.spool()
    async with lab.follow(spool, lab.python(FAMILY, "stay"), lease=SHORT) as turn:
        await read_until(turn, b"ready")
    remove_spools(Path(spool.path))
    await lab.nothing_left(spool)


async def test_the_supervisor_survives_gentle_signals(any_lab: Lab) -> None:
    spool = any_lab.spool()
    async with any_lab.follow(spool, any_lab.sh(f"echo begun; {AWAIT_GO}; echo end; exit 6")) as turn:
        await read_until(turn, b"begun")
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            os.kill(any_lab.pid(spool, "supervisor"), number)
        (any_lab.workspace / "go").touch()
        assert await drain(turn) == b"end\n"
        assert turn.exit == Exit(6, "exit")


async def test_an_agent_killed_by_a_signal_tells_it_in_its_code(any_lab: Lab) -> None:
    assert (await any_lab.run(any_lab.sh("kill -KILL $$")))[1] == Exit(137, "exit")
    assert (await any_lab.run(any_lab.sh("kill -TERM $$", stop=GENTLE)))[1] == Exit(143, "exit")


async def test_the_end_is_told_without_delay(lab: Lab) -> None:
    async def delay() -> float:
        output, _ = await lab.run(lab.python("import time; time.sleep(0.2); print(time.time())"))
        return time.time() - float(output)

    medians = []
    while not medians or (medians[-1] >= 0.25 and len(medians) < 4):  # the machine may have been busy for a while
        medians.append(statistics.median([await delay() for _ in range(7)]))
    assert medians[-1] < 0.25, medians
