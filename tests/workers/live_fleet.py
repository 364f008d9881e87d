"""Fleets whose workers have an agent that can be talked to."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tests.waiting import until
from tests.workers.fleet import Fleet, slow_recording
from tests.workers.live_worker import noted
from tests.workers.rabbit_fleet import RabbitFleet


class LiveFleet(Fleet):
    """Its workers have the agent `talkative`."""

    program = (sys.executable, "-m", "tests.workers.live_worker")

    def talking(self, recording: Path, *, pause_ms: int = 2000, **fields: Any) -> str:
        """A turn whose agent has begun."""
        slow = slow_recording(self.root / f"slow-{pause_ms}.jsonl", recording, pause_ms)
        request = self.request(agent="talkative", options={"recording": str(slow)}, **fields)
        turn_id = self.client.enqueue(request)
        until(lambda: self.has(turn_id, "session_started"), "the agent")
        return turn_id

    def has(self, turn_id: str, name: str) -> list[dict[str, Any]]:
        """The turn's events of that name."""
        return [event for event in self.events(turn_id) if event["event"] == name]

    def noted(self, turn_id: str, name: str) -> list[Any]:
        """What its agent has noted."""
        return noted(self.workspace, turn_id, name)


class LiveRabbitFleet(LiveFleet, RabbitFleet):
    """The same on a RabbitMQ."""
