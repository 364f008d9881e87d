"""The conversation of a live turn, beside what becomes of its host."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from adapters.errors import TurnError
from adapters.live import Desk, Wire
from adapters.request import TurnRequest
from remote.errors import HostUnreachable
from remote.follower import Follower
from workers import live
from workers.live import LiveTurn, Office


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
    monkeypatch.setattr(live, "_AGAIN_S", 0.0)
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
