"""Fleets whose workers have an agent that can be talked to, and that goes on when a test says so."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.support.fleets.fleet import Fleet
from tests.support.fleets.live_worker import noted
from tests.support.fleets.rabbit_fleet import RabbitFleet
from tests.support.waiting import until

_FIRST = 3  # lines that an agent prints at once


class Talking(str):
    """The id of a turn whose agent waits in the middle of its recording."""

    pipe: int
    rest: bytes

    def finish(self) -> None:
        """Let the agent print the rest, and end."""
        if self.rest:
            os.write(self.pipe, self.rest)
            os.close(self.pipe)
            self.rest = b""


class LiveFleet(Fleet):
    """Its workers have the agent `talkative`."""

    module = "tests.support.fleets.live_worker"

    def talking(self, recording: Path, **fields: Any) -> Talking:
        """A turn whose agent has begun."""
        pipe = self.root / uuid4().hex
        os.mkfifo(pipe)
        request = self.request(agent="talkative", options={"recording": str(pipe)}, **fields)
        turn = Talking(self.client.enqueue(request))
        lines = recording.read_bytes().splitlines(keepends=True)
        turn.pipe, turn.rest = os.open(pipe, os.O_RDWR), b"".join(lines[_FIRST:])
        os.write(turn.pipe, b"".join(lines[:_FIRST]))
        until(lambda: self.has(turn, "session_started"), "the agent")
        return turn

    def has(self, turn_id: str, name: str) -> list[dict[str, Any]]:
        """The turn's events of that name."""
        return [event for event in self.events(turn_id) if event["event"] == name]

    def noted(self, turn_id: str, name: str) -> list[Any]:
        """What its agent has noted."""
        return noted(self.workspace, turn_id, name)


class LiveRabbitFleet(LiveFleet, RabbitFleet):
    """The same on a RabbitMQ."""
