"""The conversation of a live turn, beside what becomes of its host and of its worker."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from adapters.errors import TurnError
from adapters.live import Control, ControlRequest, Desk, Wire
from adapters.protocol.request import TurnRequest
from adapters.protocol.result import TurnResult
from adapters.registry import Registry
from remote.errors import HostUnreachable
from remote.follower import Follower
from tests.support.fleets.live_worker import Talkative, noted
from tests.support.fleets.site import Site
from tests.support.processes import signed
from tests.support.waiting import until
from workers.live import conversation
from workers.live.conversation import LiveTurn, Office
from workers.live.messages import Said
from workers.turn.run import RunTurn
from workers.turn.settlement import Parked


class Listening:
    """An adapter, and its conversation, which listens to the agent's end."""

    def __init__(self) -> None:
        self.said: tuple[bytes, ...] = ()
        self.heard: list[bytes] = []

    def converse(self, request: TurnRequest, wire: Wire, desk: Desk) -> Listening:
        """See `LiveAdapter.converse`."""
        self.said, self._wire = wire.said, wire
        return self

    async def run(self) -> None:
        """See `Conversation.run`."""
        self.heard = [line async for line in self._wire.lines()]


def test_link_cut_while_a_conversation_is_taken_over_ends_no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "_AGAIN_S", 0.0)
    faults = [HostUnreachable("h1", "cut off by the test")] * 2
    failures: list[TurnError] = []
    opened = asyncio.Event()

    async def said() -> Sequence[bytes]:
        if faults:
            raise faults.pop()
        return (b"the prompt",)

    office = Office(
        refusal=lambda: None,
        remaining_tokens=lambda: None,
        ask=cast(Any, None),
        opened=lambda _: opened.set(),
        failed=failures.append,
        said=said,
    )
    adapter = Listening()
    request = TurnRequest.parse({"prompt": "x", "workspace": "/w"})
    turn = LiveTurn(cast(Any, adapter), request, office)

    async def take_over() -> None:
        turn.begin(cast(Follower, None))
        turn.heard([b"a line"])
        await asyncio.wait_for(opened.wait(), 20)
        await turn.close(ended=True)

    asyncio.run(take_over())
    assert (failures, adapter.said, adapter.heard) == ([], (b"the prompt",), [b"a line"])


def test_request_that_comes_again_while_its_turn_is_taken_over_is_done_once(
    tmp_path: Path, recording: Path
) -> None:
    """The next worker holds the turn, and is just about to learn what was asked of the one before."""
    site = Site(tmp_path)
    agents = Registry([Talkative(site.worker().registry.get("claude-code"))])
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    turn_id = site.queue(agent="talkative", options={"recording": str(pipe)})
    lines = recording.read_bytes().splitlines(keepends=True)

    async def take_over() -> None:
        loop, writing = asyncio.get_running_loop(), os.open(pipe, os.O_RDWR)
        said = Said(turn_id, "once", "test", site.now() + 3600, ControlRequest(Control.SEND, "hang"))

        def again(call: str) -> None:
            if call == "before events.after":
                asyncio.run_coroutine_threadsafe(hear(), loop).result(20)

        async def hear() -> None:
            second.reply(said)
            second.hear(said)

        def run(hook: Any) -> RunTurn:
            return RunTurn(replace(site.worker(hook), registry=agents), site.claim(turn_id))

        first = run(lambda _: None)
        working = asyncio.create_task(first.drive())
        os.write(writing, b"".join(lines[:3]))
        await asyncio.to_thread(until, lambda: "session_started" in "".join(site.events(turn_id)), "the agent")
        first.hear(said)
        await asyncio.to_thread(until, lambda: noted(site.workspace, turn_id, "controls"), "the first time")
        first.lose()
        await working
        second = run(again)
        working = asyncio.create_task(second.drive())
        await asyncio.to_thread(until, lambda: "worker_lost" in "".join(site.events(turn_id)), "an outcome")
        os.write(writing, b"".join(lines[3:]))
        os.close(writing)
        await working

    asyncio.run(take_over())
    assert noted(site.workspace, turn_id, "controls") == [["send", "hang"]]
    assert "".join(site.events(turn_id)).count("control_requested") == 1
    site.close()


def test_request_that_comes_again_to_the_next_attempt_is_done_once(tmp_path: Path, recording: Path) -> None:
    site = Site(tmp_path)
    agents = Registry([Talkative(site.worker().registry.get("claude-code"))])
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    turn_id = site.queue(agent="talkative", options={"recording": str(pipe)})
    lines = recording.read_bytes().splitlines(keepends=True)
    answered, lost = (
        Said(turn_id, name, "test", site.now() + 3600, ControlRequest(Control.SEND, name))
        for name in ("once", "hang")
    )

    async def begin() -> tuple[RunTurn, asyncio.Task[Any], int]:
        run = RunTurn(replace(site.worker(), registry=agents), site.claim(turn_id))
        working, writing = asyncio.create_task(run.drive()), os.open(pipe, os.O_RDWR)
        started = "".join(site.events(turn_id)).count("session_started")
        os.write(writing, b"".join(lines[:3]))
        await asyncio.to_thread(
            until, lambda: "".join(site.events(turn_id)).count("session_started") > started, "the agent"
        )
        return run, working, writing

    async def try_twice() -> None:
        run, working, writing = await begin()
        run.hear(answered)
        run.hear(lost)
        await asyncio.to_thread(until, lambda: len(noted(site.workspace, turn_id, "controls")) == 2, "both")
        os.kill(signed(site.spool / f"{turn_id}.1", "agent"), signal.SIGKILL)
        assert isinstance(await working, Parked)
        os.close(writing)
        run, working, writing = await begin()
        outcomes = [run.reply(said) for said in (answered, lost)]
        run.hear(answered)
        run.hear(lost)
        os.write(writing, b"".join(lines[3:]))
        os.close(writing)
        assert isinstance(await working, TurnResult)
        assert [reply and reply.outcome and reply.outcome["error_kind"] for reply in outcomes] == [
            None,
            "turn_ended",
        ]
        assert outcomes[0] is not None
        assert outcomes[0].outcome is not None

    asyncio.run(try_twice())
    assert len(noted(site.workspace, turn_id, "controls")) == 2
    site.close()
