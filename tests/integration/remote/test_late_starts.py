"""What comes late, in part, or unasked starts nothing: its turn may be over, or run elsewhere."""

from __future__ import annotations

import asyncio
import os
import secrets
from pathlib import Path
from typing import Any

import psutil
import pytest

from adapters.command import Command
from remote import follower as follower_module
from remote.attachment import Attachment
from remote.errors import HostUnreachable, SpawnRefused
from remote.follower import Lease
from remote.host import Channel
from remote.host_queries import end_processes
from remote.local import LocalHost
from remote.programs import Attach, Request, start_request
from remote.run import Output, run_script
from remote.shell import frame
from remote.spool import Exit
from tests.support.processes import gone
from tests.support.ssh.laboratory import QUICK, Lab, drain, eventually

LARGE = b"p" * 100_000  # too large for a word of the program


class Starter:
    """A start, spoken by hand."""

    def __init__(self, lab: Lab, stdin: bytes = b"", stale_s: int = 60, lease_s: int = 30) -> None:
        self._lab = lab
        self.spool = lab.spool()
        self._nonce = secrets.token_hex(8)
        command: Command = lab.sh("echo x >>runs; cat", stdin=stdin)
        attach = Attach(self.spool, "follower", self._nonce, 0, stale_s)
        self.request: Request = start_request(attach, command, lease_s)
        self._said = b""

    async def begin(self) -> Channel:
        """Send the program and nothing else."""
        channel = await self._lab.host.open_channel()
        await channel.write(self.request.program)
        return channel

    async def asked_for(self, channel: Channel, what: str) -> None:
        """Read until the host asks for it."""
        await self._told(channel, f"SEND {self._nonce} {what}\n")

    async def refused(self, channel: Channel, code: str) -> None:
        """Read until the host refuses the start."""
        await self._told(channel, f"REFUSED {self._nonce} {code} ")

    async def _told(self, channel: Channel, what: str) -> None:
        async with asyncio.timeout(120):
            while f"\nRT-{what}".encode() not in self._said:
                chunk = await channel.read()
                assert chunk, self._said
                self._said += chunk

    def hold_agent(self) -> Path:
        """Keep the agent from signing until somebody opens the returned FIFO. Its draft has to be complete."""
        (draft,) = self._lab.root.glob(".*")
        (draft / "prompt").unlink()
        os.mkfifo(draft / "prompt")
        return Path(self.spool.path, "prompt")

    async def nothing_started(self) -> None:
        """Neither a spool nor the draft of one is left, and no agent ran."""
        root = self._lab.root
        await eventually(lambda: not list(root.iterdir()), lambda: list(root.iterdir()))
        await self._lab.nothing_left(self.spool)
        assert not (self._lab.workspace / "runs").exists()


async def test_a_start_that_nobody_waits_for_any_more_starts_nothing(any_lab: Lab) -> None:
    start = Starter(any_lab)
    channel = await start.begin()
    await start.asked_for(channel, "go")
    await channel.close()
    await start.nothing_started()


async def test_a_word_to_go_that_was_long_under_way_starts_nothing(any_lab: Lab) -> None:
    start = Starter(any_lab, stale_s=-1)
    channel = await start.begin()
    await start.asked_for(channel, "go")
    await channel.write(b"go\n")
    assert await channel.read() == b""
    await channel.close()
    await start.nothing_started()


async def test_a_large_prompt_that_is_cut_off_starts_nothing(any_lab: Lab) -> None:
    start = Starter(any_lab, LARGE)
    channel = await start.begin()
    await start.asked_for(channel, "prompt")
    await channel.write(LARGE[:-1])
    await channel.close()
    await start.nothing_started()


async def test_a_large_prompt_alone_is_no_word_to_go(any_lab: Lab) -> None:
    start = Starter(any_lab, LARGE)
    channel = await start.begin()
    await start.asked_for(channel, "prompt")
    await channel.write(LARGE)
    await start.asked_for(channel, "go")
    await channel.close()
    await start.nothing_started()


async def test_an_agent_whose_turn_was_given_up_before_it_could_sign_does_not_start(any_lab: Lab) -> None:
    start = Starter(any_lab, LARGE, lease_s=6)
    channel = await start.begin()
    await start.asked_for(channel, "prompt")
    await channel.write(LARGE)
    await start.asked_for(channel, "go")
    prompt = start.hold_agent()
    await channel.write(b"go\n")
    supervisor = psutil.Process(any_lab.pid(start.spool, "supervisor"))
    await eventually(lambda: len(supervisor.children()) == 2)  # its watcher, and what is to become the agent
    (agent,) = (child for child in supervisor.children() if child.pid != any_lab.pid(start.spool, "watcher"))
    any_lab.kill(start.spool, "supervisor")
    await eventually(lambda: any_lab.state(start.spool, "end")[1:2] == ["lost"])
    assert not gone(agent)
    prompt.open("wb").close()
    await any_lab.nothing_left(start.spool)
    assert not (any_lab.workspace / "runs").exists()
    await channel.close()


@pytest.mark.parametrize("cut", [1, 7, 1_000, 10_000])
async def test_a_program_that_is_cut_off_does_nothing(any_lab: Lab, cut: int) -> None:
    start = Starter(any_lab)
    channel = await any_lab.host.open_channel()
    await channel.write(start.request.program[:-cut])
    await channel.close()
    assert not any_lab.root.exists()


async def test_a_program_whose_beginning_was_read_by_somebody_else_does_nothing(any_lab: Lab) -> None:
    channel = await any_lab.host.open_channel()
    text = b"echo x >evil"
    await channel.write(b"%d\n%b" % (len(text), text))
    assert await channel.read() == b""
    await channel.close()
    assert not (any_lab.workspace / "evil").exists()


@pytest.mark.parametrize("stdin", [b"", b"prompt", LARGE], ids=["none", "small", "large"])
async def test_a_start_that_is_forbidden_while_its_channel_opens_waits(lab: Lab, stdin: bytes) -> None:
    looks: list[bool] = []

    def may_start() -> bool:
        """Yes, then no when the host is ready, and so on; the second time it is yes for good."""
        looks.append(len(looks) != 1)
        return looks[-1]

    command = lab.sh("echo x >>runs; cat", stdin=stdin)
    async with lab.follow(lab.spool(), command, lease=Lease(30, 0.2, may_start=may_start)) as turn:
        assert looks == [True, False, True, True]
        assert turn.asked
        output = await drain(turn)
    assert (output.rstrip(b"\n"), turn.exit) == (stdin, Exit(0, "exit"))
    assert (lab.workspace / "runs").read_text() == "x\n"


async def test_nothing_was_asked_of_a_host_that_was_not_told_to_go(lab: Lab) -> None:
    lease = Lease(30, 0.2, may_start=lambda: not lab.host.channels)
    turn = lab.follow(lab.spool(), lab.sh("echo x"), lease=lease)
    entering = asyncio.create_task(turn.__aenter__())
    await eventually(lambda: bool(lab.host.channels))
    await eventually(lambda: not list(lab.root.glob("*")) if lab.root.exists() else False)
    await turn.detach()
    await entering
    assert not turn.asked


async def test_a_host_that_takes_channels_and_never_answers_is_out_of_reach_all_the_time(lab: Lab) -> None:
    now = 0.0

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += max(seconds, 1.0)

    spool = lab.spool()
    await lab.run(lab.sh("echo hi"), spool)
    lab.host.dead_letters = 10**6
    turn = lab.follow(spool, clock=lambda: now, sleep=sleep)
    with pytest.raises(HostUnreachable):
        await turn.__aenter__()
    assert not turn.asked
    assert turn.out_of_reach_s >= QUICK.give_up_s


async def test_an_attachment_that_stands_when_its_follower_is_cancelled_is_closed(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    attachments: list[Attachment] = []
    attach = follower_module.attach

    async def attach_and_cancel(*args: Any, **options: Any) -> Attachment:
        attachments.append(await attach(*args, **options))
        entering.cancel()
        return attachments[0]

    monkeypatch.setattr(follower_module, "attach", attach_and_cancel)
    turn = lab.follow(lab.spool(), lab.sh("echo begun; sleep 60"))
    entering = asyncio.create_task(turn.__aenter__())
    with pytest.raises(asyncio.CancelledError):
        await entering
    with pytest.raises(HostUnreachable):
        while True:
            await attachments[0].read()


async def test_what_the_host_exports_under_our_names_shows_nothing_of_ours(any_lab: Lab) -> None:
    names = ("prompt", "s", "n", "root", "value", "agent_environment", "seal", "locale", "script", "nonce")
    theirs = dict.fromkeys(names, "theirs")
    host = LocalHost({"PATH": any_lab.path, "HOME": str(any_lab.home), **theirs})
    output, _ = await any_lab.run(any_lab.command("env", stdin=b"a secret", env={"TOKEN": "t"}), host=host)
    told = (await run_script(host, "env", ("a secret",))).stdout
    for printed in (output.decode(), told.decode()):
        seen = dict(line.split("=", 1) for line in printed.splitlines() if "=" in line)
        assert {seen[name] for name in names if name in seen} <= {"theirs"}
        assert "a secret" not in printed
    assert "TOKEN=t\n" in output.decode()


class Canned:
    """A host whose only channel says what it is told to say."""

    name, path, rest_s = "canned", "", 0.0

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._said: asyncio.Queue[bytes] = asyncio.Queue()

    async def open_channel(self) -> Canned:
        return self

    async def write(self, data: bytes) -> None:
        nonce = data.partition(b"nonce='")[2].partition(b"'")[0]
        whole = b"\nRT-BEGIN %b\nout\nRT-EXIT %b 90\nspool_missing x\nRT-END %b\n" % (nonce, nonce, nonce)
        self.length = len(whole)
        for said in (whole[: self._keep], b""):
            self._said.put_nowait(said)

    async def read(self) -> bytes:
        return await self._said.get()

    async def close(self) -> None:
        pass


async def test_a_short_command_that_was_cut_off_anywhere_has_not_ended() -> None:
    whole = Canned(10**6)
    assert await run_script(whole, "true") == Output(90, b"out", b"spool_missing x")
    for keep in range(whole.length):
        with pytest.raises(HostUnreachable, match="in the middle of a command"):
            await run_script(Canned(keep), "true")


def test_a_program_is_one_compound_command() -> None:
    assert frame(b"echo hi") == b"11\n{\necho hi\n}"


async def test_word_to_go_that_comes_after_its_turn_was_given_up_starts_nothing(any_lab: Lab) -> None:
    start = Starter(any_lab)
    channel = await start.begin()
    await start.asked_for(channel, "go")
    await end_processes(any_lab.host, start.spool)
    await channel.write(b"go\n")
    await start.refused(channel, "spool_missing")
    await channel.close()
    await start.nothing_started()


async def test_turn_whose_delayed_start_was_faster_is_not_given_up(any_lab: Lab) -> None:
    start = Starter(any_lab)
    channel = await start.begin()
    await start.asked_for(channel, "go")
    await channel.write(b"go\n")
    await eventually(Path(start.spool.path).exists)
    with pytest.raises(SpawnRefused, match="its start was delayed") as refusal:
        await end_processes(any_lab.host, start.spool)
    assert refusal.value.code == "spool_exists"
    await channel.close()
