"""What is said to a live turn: each line once and in order, whatever becomes of the link."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from adapters.command import Command
from remote.errors import SpawnRefused
from remote.follower import Follower, Lease
from remote.host_queries import read_input
from remote.input_buffer import MAX_INPUT_LINE_BYTES
from remote.spool import Exit
from tests.support.processes import gone
from tests.support.ssh.laboratory import CuttableHost, Lab, drain, eventually, read_until
from tests.support.ssh.ssh_laboratory import SshLab
from tests.support.ssh.sshd import Sshd

ECHO = 'while IFS= read -r line; do printf "heard %s\\n" "$line"; done; echo over'
REPEAT = """
import sys
for line in sys.stdin.buffer:
    sys.stdout.buffer.write(b"heard " + line)
    sys.stdout.buffer.flush()
print("over", flush=True)
"""
ODD = bytes(byte for byte in range(1, 256) if byte != 10)


def heard(*lines: bytes) -> bytes:
    return b"".join(b"heard " + line + b"\n" for line in lines) + b"over\n"


def counted(numbers: range) -> list[bytes]:
    return [b"line %d" % number for number in numbers]


def live(lab: Lab, **fields: Any) -> Command:
    return lab.python(REPEAT, live=True, **fields)


async def test_an_agent_reads_what_follows_its_prompt_until_the_input_ends(any_lab: Lab) -> None:
    spool = any_lab.spool()
    command = any_lab.sh(ECHO, stdin=b"one\n", live=True)
    async with any_lab.follow(spool, command) as turn:
        assert turn.said == 1
        await turn.send(b"two")
        await read_until(turn, b"heard two")
        await turn.send(b"three")
        await turn.end_input()
        assert await drain(turn) == b"heard three\nover\n"
        assert await read_input(any_lab.host, spool) == b"one\ntwo\nthree\n"
    assert turn.exit == Exit(0, "exit")
    await any_lab.nothing_left(spool)


async def test_any_bytes_arrive_as_they_are(any_lab: Lab) -> None:
    lines = [
        b"",
        b" leading and trailing ",
        b"back\\slash $(id) `id` %s",
        ODD,
        "caf\u00e9".encode(),
        b"-n",
        b"S 9 1 x",
    ]
    async with any_lab.follow(any_lab.spool(), live(any_lab)) as turn:
        for line in lines:
            await turn.send(line)
        await turn.end_input()
        assert await drain(turn) == heard(*lines)


async def test_a_line_of_a_megabyte_arrives(any_lab: Lab) -> None:
    long = os.urandom(MAX_INPUT_LINE_BYTES // 2).hex().encode()
    source = "import sys, hashlib; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())"
    async with any_lab.follow(any_lab.spool(), any_lab.python(source, live=True)) as turn:
        await turn.send(long)
        await turn.send(b"behind")
        await turn.end_input()
        expected = hashlib.sha256(long + b"\nbehind\n").hexdigest()
        assert await drain(turn) == f"{expected}\n".encode()


async def test_what_is_said_before_the_first_attachment_is_kept_in_order(any_lab: Lab) -> None:
    turn = any_lab.follow(any_lab.spool(), live(any_lab, stdin=b"prompt\n"))
    for line in counted(range(20)):
        await turn.send(line)
    await turn.end_input()
    async with turn:
        assert await drain(turn) == heard(b"prompt", *counted(range(20)))


async def test_a_link_cut_again_and_again_has_each_line_said_once(any_lab: Lab) -> None:
    spool, lines = any_lab.spool(), counted(range(200))
    async with any_lab.follow(spool, live(any_lab)) as turn:
        talking = asyncio.create_task(talk(turn, lines, any_lab.host))
        assert await drain(turn) == heard(*lines)
        await talking
    assert turn.reattachments >= 5
    assert await read_input(any_lab.host, spool) == b"".join(line + b"\n" for line in lines)


async def talk(turn: Follower, lines: list[bytes], host: CuttableHost) -> None:
    for number, line in enumerate(lines):
        await turn.send(line)
        if number % 30 == 29:
            await eventually(lambda: turn.attached)
            host.cut()  # with the last lines under way
            await eventually(lambda: not turn.attached)
    await turn.end_input()


async def test_a_stranded_follower_says_nothing_any_more_once_it_is_replaced(any_lab: Lab) -> None:
    spool, lines = any_lab.spool(), counted(range(40))
    async with any_lab.follow(spool, live(any_lab)) as turn:
        await turn.send(lines[0])
        await read_until(turn, b"heard " + lines[0])
        stranded = psutil.Process(any_lab.host.shell)
        (tail,) = stranded.children()
        for line in lines[1:20]:
            await turn.send(line)  # some are still to be read there
        any_lab.host.channels[0].stranded = True
        os.kill(tail.pid, signal.SIGKILL)  # wakes the reader, which finds that its channel has ended
        for line in lines[20:]:
            await turn.send(line)
        await turn.end_input()
        assert await drain(turn) == heard(*lines[1:])
    assert await read_input(any_lab.host, spool) == b"".join(line + b"\n" for line in lines)
    await eventually(lambda: gone(stranded))


async def test_a_line_that_a_cut_has_torn_is_completed_by_the_next_attachment(any_lab: Lab) -> None:
    spool = any_lab.spool()
    async with any_lab.follow(spool, live(any_lab)) as turn:
        await turn.send(b"one")
        await read_until(turn, b"heard one")
        any_lab.host.cut()
        with Path(spool.path, "prompt").open("ab") as prompt:
            prompt.write(b"tw")  # as a follower does that is killed in the middle of it
        await turn.send(b"two")
        await turn.end_input()
        assert await drain(turn) == b"heard two\nover\n"
    assert await read_input(any_lab.host, spool) == b"one\ntwo\n"


async def test_the_next_worker_reads_what_was_said_and_goes_on(any_lab: Lab) -> None:
    spool = any_lab.spool()
    async with any_lab.follow(spool, live(any_lab, stdin=b"prompt\n")) as first:
        await first.send(b"one")
        await read_until(first, b"heard one")
        async with any_lab.follow(spool) as second:
            assert second.said == 2
            assert await read_input(any_lab.host, spool) == b"prompt\none\n"
            await first.send(b"by a worker that has lost the turn")
            await second.send(b"two")
            await second.end_input()
            assert await drain(second) == heard(b"prompt", b"one", b"two")


async def test_a_worker_that_attaches_again_after_it_has_lost_the_turn_tells_the_agent_nothing(
    any_lab: Lab,
) -> None:
    spool = any_lab.spool()
    async with any_lab.follow(spool, live(any_lab), lease=Lease(epoch=3)) as first:
        await first.send(b"one")
        await read_until(first, b"heard one")
        async with any_lab.follow(spool, lease=Lease(epoch=10)) as second:
            async with any_lab.follow(spool, lease=Lease(epoch=9)) as late:
                assert late.said == 1
                await late.send(b"by a worker that has lost the turn")
                await late.end_input()
                await late.soft_stop(b"x")  # what was said before it has been heard now
                await eventually(Path(spool.path, "files/stop").exists)
            await second.send(b"two")
            await second.end_input()
            assert await drain(second) == heard(b"one", b"two")


async def test_the_end_of_the_input_survives_a_cut(any_lab: Lab) -> None:
    async with any_lab.follow(any_lab.spool(), live(any_lab)) as turn:
        await turn.send(b"one")
        await read_until(turn, b"heard one")
        any_lab.host.refusals = 2
        any_lab.host.cut()
        await turn.end_input()
        assert await drain(turn) == b"over\n"


async def test_an_agent_that_never_reads_is_ended_like_any_other(any_lab: Lab) -> None:
    spool = any_lab.spool()
    async with any_lab.follow(spool, any_lab.sh("echo up; exec sleep 300", live=True)) as turn:
        await read_until(turn, b"up")
        for _ in range(5):
            await turn.send(b"x" * 50_000)  # more than a pipe holds
        await turn.cancel()
        await drain(turn)
    assert turn.exit is not None
    assert turn.exit.reason == "cancel"
    await any_lab.nothing_left(spool)


async def test_an_agent_that_ends_before_its_input_leaves_nothing(any_lab: Lab) -> None:
    spool = any_lab.spool()
    async with any_lab.follow(spool, any_lab.sh("read -r line; exit 3", live=True)) as turn:
        for line in counted(range(50)):
            await turn.send(line)
        assert await drain(turn) == b""
    assert turn.exit == Exit(3, "exit")
    await any_lab.nothing_left(spool)


@pytest.mark.parametrize("victims", [("supervisor",), ("watcher", "supervisor"), ("agent",)])
async def test_whoever_is_killed_no_feeder_is_left(lab: Lab, victims: tuple[str, ...]) -> None:
    spool = lab.spool()
    async with lab.follow(spool, lab.sh(ECHO, live=True), lease=Lease(6, 0.2)) as turn:
        await turn.send(b"one")
        await read_until(turn, b"heard one")
        lab.kill(spool, *victims)
        await drain(turn)
    assert turn.exit is not None
    await lab.nothing_left(spool)


async def test_nobody_follows_any_more_and_the_lease_ends_agent_and_feeder(lab: Lab) -> None:
    spool = lab.spool()
    async with lab.follow(spool, lab.sh(ECHO, live=True), lease=Lease(4, 0.2)) as turn:
        await turn.send(b"one")
        await read_until(turn, b"heard one")
    await lab.nothing_left(spool)
    _, end = await lab.run(None, spool)
    assert end.reason == "lease"


async def test_a_missing_mkfifo_is_named_for_live_turns_only(lab: Lab, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in Path("/usr/bin").iterdir():
        if tool.name != "mkfifo":
            (tools / tool.name).symlink_to(tool)
    bare = Lab(tmp_path / "bare", str(tools))
    with pytest.raises(SpawnRefused, match="mkfifo") as refusal:
        await bare.run(bare.sh(ECHO, live=True))
    assert refusal.value.code == "tool_missing"
    assert (await bare.run(bare.sh("echo hi")))[0] == b"hi\n"


@pytest.mark.parametrize("line", [b"two\nlines", b"a NUL \0", b"x" * (MAX_INPUT_LINE_BYTES + 1)])
async def test_what_is_no_line_is_refused(lab: Lab, line: bytes) -> None:
    turn = lab.follow(lab.spool(), live(lab))
    with pytest.raises(ValueError, match="a line for an agent"):
        await turn.send(line)


async def test_nothing_is_said_behind_the_end_or_to_a_turn_that_is_not_live(lab: Lab) -> None:
    turn = lab.follow(lab.spool(), live(lab))
    await turn.end_input()
    with pytest.raises(ValueError, match="already ended"):
        await turn.send(b"more")
    async with lab.follow(lab.spool(), lab.sh("cat")) as turn:
        with pytest.raises(ValueError, match="not live"):
            await turn.send(b"more")


async def test_a_live_prompt_is_made_of_lines(lab: Lab) -> None:
    with pytest.raises(ValueError, match="lacks its newline"):
        await lab.run(lab.sh(ECHO, live=True, stdin=b"no newline"))


async def test_the_word_to_end_lies_in_the_spool_of_any_turn_and_survives_a_cut(any_lab: Lab) -> None:
    spool = any_lab.spool()
    script = (
        'echo up; until [ -e "$RUNTURN_SPOOL/files/stop" ]; do sleep 0.05; done; cat "$RUNTURN_SPOOL/files/stop"'
    )
    async with any_lab.follow(spool, any_lab.sh(script)) as turn:
        await read_until(turn, b"up")
        any_lab.host.refusals = 1
        any_lab.host.cut()
        await turn.soft_stop(b'{"a": "\\n %s"}')
        assert await drain(turn) == b'{"a": "\\n %s"}\n'
    assert Path(spool.path, "files/stop").stat().st_mode & 0o777 == 0o600


async def test_over_ssh_a_lost_connection_has_each_line_said_once(lab: Lab, sshd: Sshd, site: SshLab) -> None:
    spool, lines = lab.spool(), counted(range(60))
    async with site.pool(site.target(sshd)) as host:
        async with lab.follow(spool, live(lab), host=host) as turn:
            talking = asyncio.create_task(talk_over(turn, lines, sshd))
            assert await drain(turn) == heard(*lines)
            await talking
        assert turn.reattachments >= 2
        assert await read_input(host, spool) == b"".join(line + b"\n" for line in lines)
    await lab.nothing_left(spool)


async def talk_over(turn: Follower, lines: list[bytes], sshd: Sshd) -> None:
    for number, line in enumerate(lines):
        await turn.send(line)
        if number % 25 == 24:
            await eventually(lambda: turn.attached)
            sshd.kill_sessions()
            await eventually(lambda: not turn.attached)
    await turn.end_input()
