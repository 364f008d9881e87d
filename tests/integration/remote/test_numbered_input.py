"""The words to a live turn's agent, cut at any byte, sent again, and by several: each line counts once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
from asyncio.subprocess import PIPE
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from remote.host import Channel
from remote.host_queries import read_input
from remote.programs import Attach
from remote.shell import library
from remote.spool import Spool
from remote.stream import Answer, Ready
from tests.integration.remote.test_live_input import heard, live
from tests.support.ssh.laboratory import Lab, drain, eventually

LINES = st.binary(max_size=40).map(lambda text: text.replace(b"\n", b"n").replace(b"\0", b"0"))


@dataclass(frozen=True)
class Link:
    """One attachment: what it says, and how it ends."""

    follower: str  # by turns, or always the same
    first: int  # of its words, behind the last line that counts: 1 is the next one, below are repetitions
    lines: tuple[bytes, ...]
    share: float  # of the bytes that arrive
    torn: bytes  # of a line, in the file: its shell was killed while it wrote
    killed: bool  # at once, and not when it has read all that came


LINKS = st.lists(
    st.builds(
        Link,
        follower=st.sampled_from("ab"),
        first=st.integers(-1, 2),
        lines=st.lists(LINES, max_size=4).map(tuple),
        share=st.floats(0, 1),
        torn=st.just(b"") | LINES,
        killed=st.booleans(),
    ),
    min_size=1,
    max_size=5,
)


@pytest.fixture
def labs(tmp_path: Path) -> Iterator[Callable[[], Lab]]:
    """A host for each example."""
    made: list[Lab] = []

    def make() -> Lab:
        made.append(Lab(tmp_path / str(len(made)), "/usr/bin:/bin"))
        return made[-1]

    yield make
    for lab in made:
        lab.clean_up()


@given(LINKS)
@settings(
    max_examples=12, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_each_line_counts_once_wherever_links_are_cut(labs: Callable[[], Lab], links: list[Link]) -> None:
    asyncio.run(_play(labs(), links))


async def test_state_is_read_whole_while_it_is_written(any_lab: Lab, tmp_path: Path) -> None:
    script = f"spool={tmp_path}\n{library('state')}"
    writer = 'n=0; while [ "$n" -lt 8000 ]; do n=$((n + 1)); put said "$n $((n * 48))"; done; put said over'
    odd = (
        '[ -z "$value" ] || [ "$value" = over ] || [ "$((${value%% *} * 48))" -eq "${value#* }" ] || echo "$value"'
    )
    reader = f'until get said; [ "$value" = over ]; do {odd}; done'
    (tmp_path / "said").write_text("\n")
    run = partial(asyncio.create_subprocess_exec, "sh", "-c", env={"PATH": any_lab.path}, stdout=PIPE)
    shells = [await run(f"{script}\n{loop}") for loop in (reader, writer)]
    read, _ = [(await shell.communicate())[0] for shell in shells]
    assert read == b""


async def _play(lab: Lab, links: list[Link]) -> None:
    spool, expected = lab.spool(), [b"prompt"]
    async with lab.follow(spool, live(lab, stdin=b"prompt\n")):
        pass  # it runs, and is left
    for link in links:
        await _say(lab, spool, link, expected)
    async with lab.follow(spool) as turn:
        assert turn.said == len(expected) or links[-1].killed
        told = (await read_input(lab.host, spool)).split(b"\n")[:-1]
        assert told[: len(expected)] == expected[: len(told)]
        await turn.send(b"last")
        await turn.end_input()
        assert await drain(turn) == heard(*told, b"last")


async def _say(lab: Lab, spool: Spool, link: Link, expected: list[bytes]) -> None:
    """Play one attachment; `expected` is what counts then at most."""
    channel = await lab.host.open_channel()
    said = await _attach(channel, spool, link.follower)
    assert said <= len(expected)
    del expected[said:]  # the last one was killed before it had read all
    first = said + link.first
    words = [b"S %d %d %b\n" % (n, len(line) + 1, line) for n, line in enumerate(link.lines, first)]
    arrived = b"".join(words)[: round(link.share * len(b"".join(words)))]
    await channel.write(arrived)
    for number, line in list(enumerate(link.lines, first))[: arrived.count(b"\n")]:
        if number == len(expected) + 1:
            expected.append(line)
    if link.killed:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(lab.host.shell, signal.SIGKILL)
    else:
        await eventually(
            lambda: lab.state(spool, "said")[0] == str(len(expected)), lambda: lab.state(spool, "said")
        )
    await channel.close()
    with Path(spool.path, "prompt").open("ab") as prompt:
        prompt.write(link.torn)


async def _attach(channel: Channel, spool: Spool, follower: str) -> int:
    """Attach by hand; returns how many lines count."""
    answer = Answer(nonce := secrets.token_hex(4))
    await channel.write(Attach(spool, follower, nonce, 0, 60).request("/usr/bin:/bin").program)
    while not isinstance(ready := answer.feed(await channel.read()), Ready):
        pass
    assert ready.said is not None
    return ready.said
