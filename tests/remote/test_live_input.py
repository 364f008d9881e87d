"""What is said to a live turn: each line once and in order, whatever becomes of the link."""

from __future__ import annotations

from laboratory import Lab, drain, read_until

from remote.spool import Exit
from remote.upkeep import read_input


async def test_an_agent_reads_what_follows_its_prompt_until_the_input_ends(any_lab: Lab) -> None:
    spool = any_lab.spool()
    command = any_lab.sh('while read -r line; do echo "heard $line"; done; echo over', stdin=b"one\n", live=True)
    async with any_lab.follow(spool, command) as turn:
        assert turn.said == 1
        await turn.send(b"two")
        await read_until(turn, b"heard two")
        await turn.send(b"three")
        await turn.end_input()
        assert await drain(turn) == b"heard three\nover\n"
    assert turn.exit == Exit(0, "exit")
    assert await read_input(any_lab.host, spool) == b"one\ntwo\nthree\n"
    await any_lab.nothing_left(spool)
