"""What is asked of a host when a turn has ended: over the channel that is there already."""

from __future__ import annotations

from pathlib import Path

import pytest

from remote.errors import SpawnRefused
from remote.follower import Follower
from remote.spool import Exit
from tests.support.ssh.laboratory import Lab, drain, read_until


async def ended(turn: Follower) -> None:
    await drain(turn)
    assert turn.exit is not None


async def test_stderr_is_told_and_the_spool_removed_over_one_channel(any_lab: Lab) -> None:
    spool = any_lab.spool()
    async with any_lab.follow(spool, any_lab.sh("echo out; printf 'trouble\\n\\n' >&2")) as turn:
        await ended(turn)
        assert await turn.stderr_tail() == b"trouble\n\n"
        assert Path(spool.path).exists()
        await turn.remove_spool()
        assert list(any_lab.root.iterdir()) == []
    assert len(any_lab.host.channels) == 1
    await any_lab.nothing_left(spool)


async def test_silence_on_stderr_is_told(any_lab: Lab) -> None:
    async with any_lab.follow(any_lab.spool(), any_lab.sh("echo out")) as turn:
        await ended(turn)
        assert await turn.stderr_tail() == b""


async def test_only_the_end_of_three_megabytes_is_told(any_lab: Lab) -> None:
    script = "head -c 3000000 /dev/zero >&2; printf '\\377\\nthe end' >&2"
    async with any_lab.follow(any_lab.spool(), any_lab.sh(script)) as turn:
        await ended(turn)
        tail = await turn.stderr_tail()
    assert len(tail) == 65_536
    assert tail.endswith(b"\0\xff\nthe end")


async def test_a_turn_that_had_ended_before_is_cleared_alike(any_lab: Lab) -> None:
    spool = any_lab.spool()
    await any_lab.run(any_lab.sh("echo out; echo trouble >&2; exit 3"), spool)
    async with any_lab.follow(spool) as turn:
        await ended(turn)
        assert turn.exit == Exit(3, "exit")
        assert await turn.stderr_tail() == b"trouble\n"
        await turn.remove_spool()
    assert len(any_lab.host.channels) == 2
    assert list(any_lab.root.iterdir()) == []


async def test_a_lost_channel_is_replaced(lab: Lab) -> None:
    spool = lab.spool()
    async with lab.follow(spool, lab.sh("echo trouble >&2")) as turn:
        await ended(turn)
        lab.host.cut()
        assert await turn.stderr_tail() == b"trouble\n"
        await turn.remove_spool()
    assert list(lab.root.iterdir()) == []


async def test_a_channel_that_is_lost_before_the_removal_is_replaced(lab: Lab) -> None:
    spool = lab.spool()
    async with lab.follow(spool, lab.sh("echo trouble >&2")) as turn:
        await ended(turn)
        assert await turn.stderr_tail() == b"trouble\n"
        lab.host.cut()
        await turn.remove_spool()
    assert list(lab.root.iterdir()) == []


async def test_a_follower_that_has_detached_can_still_clear_up(lab: Lab) -> None:
    spool = lab.spool()
    async with lab.follow(spool, lab.sh("echo trouble >&2")) as turn:
        await ended(turn)
    assert await turn.stderr_tail() == b"trouble\n"
    await turn.remove_spool()
    assert list(lab.root.iterdir()) == []


async def test_the_spool_of_a_turn_that_goes_on_is_not_removed(any_lab: Lab) -> None:
    spool = any_lab.spool()
    async with any_lab.follow(spool, any_lab.sh("echo begun; while [ ! -e go ]; do sleep 0.05; done")) as turn:
        await read_until(turn, b"begun")
        with pytest.raises(SpawnRefused) as refusal:
            await turn.remove_spool()
        assert refusal.value.code == "spool_in_use"
        (any_lab.workspace / "go").touch()
        await drain(turn)
        assert turn.exit == Exit(0, "exit")


async def test_who_prints_on_behind_the_end_does_not_disturb(any_lab: Lab) -> None:
    """In a session of its own and without the turn's mark, so that nobody finds it."""
    chat, spool = any_lab.workspace / "chat", any_lab.spool()
    chat.touch()
    chatter = 'while [ -e "$0" ]; do echo still here; done'
    agent = 'setsid env -i sh -c "$1" "$2" & sleep 0.2'
    async with any_lab.follow(spool, any_lab.sh(agent, chatter, str(chat))) as turn:
        await ended(turn)
        assert await turn.stderr_tail() == b""
        await turn.remove_spool()
    chat.unlink()
    assert list(any_lab.root.iterdir()) == []
