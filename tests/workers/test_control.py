"""What producers say to turns that run: it reaches the agent, once, and the ledger tells of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from adapters.live import Control, ControlRequest
from ops.errors import UnknownTurn
from tests.waiting import until
from tests.workers.fleet import Fleet, slow_recording
from tests.workers.live_worker import noted
from workers.errors import ControlFailed, ControlRefused, ControlTimeout

INTERRUPT = ControlRequest(Control.INTERRUPT)


class LiveFleet(Fleet):
    """Its workers have the agent `talkative`."""

    program = (sys.executable, "-m", "tests.workers.live_worker")

    def talking(self, recording: Path, **fields: Any) -> str:
        """A turn whose agent has begun."""
        slow = slow_recording(self.root / "slow.jsonl", recording, 2000)
        request = self.request(agent="talkative", options={"recording": str(slow)}, **fields)
        turn_id = self.client.enqueue(request)
        until(lambda: self.has(turn_id, "session_started"), "the agent")
        return turn_id

    def has(self, turn_id: str, name: str) -> list[dict[str, Any]]:
        """The turn's events of that name."""
        return [event for event in self.events(turn_id) if event["event"] == name]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveFleet]:
    """A fleet with a worker."""
    with LiveFleet(tmp_path_factory.mktemp("control")) as fleet:
        fleet.start_worker()
        yield fleet


@pytest.fixture
def turn(fleet: LiveFleet, recording: Path) -> Iterator[str]:
    """A turn that runs."""
    turn_id = fleet.talking(recording)
    yield turn_id
    fleet.client.cancel(turn_id)
    fleet.result(turn_id)


def test_request_is_done_once_and_stands_in_the_ledger(fleet: LiveFleet, turn: str) -> None:
    client = fleet.client
    assert client.control(turn, ControlRequest(Control.SERVER_INFO)) == {"commands": ["compact"]}
    for _ in range(2):
        assert client.control(turn, INTERRUPT, request_id="stop", by="ann") == {}
    model = ControlRequest(Control.SET_MODEL, "claude-opus-5")
    assert client.control(turn, model, request_id="model", by="ann") == {}
    assert noted(fleet.workspace, turn, "controls") == [
        ["server_info", None],
        ["interrupt", None],
        ["set_model", "claude-opus-5"],
    ]
    until(lambda: len(fleet.has(turn, "control_answered")) == 3, "the answers in the ledger")
    told = fleet.has(turn, "control_requested")[1:] + fleet.has(turn, "control_answered")[1:]
    assert [{name: event[name] for name in event if name not in ("seq", "at")} for event in told] == [
        {"event": "control_requested", "aside": True, "request_id": "stop", "control": "interrupt",
         "by": "ann", "value": None},
        {"event": "control_requested", "aside": True, "request_id": "model", "control": "set_model",
         "by": "ann", "value": "claude-opus-5"},
        {"event": "control_answered", "aside": True, "request_id": "stop", "control": "interrupt",
         "ok": True, "response": {}, "error_kind": None, "message": None},
        {"event": "control_answered", "aside": True, "request_id": "model", "control": "set_model",
         "ok": True, "response": {}, "error_kind": None, "message": None},
    ]  # fmt: skip


def test_agent_that_refuses_or_fails_or_is_silent_is_told_apart(fleet: LiveFleet, turn: str) -> None:
    with pytest.raises(ControlRefused, match="has to be default or plan"):
        fleet.client.control(turn, ControlRequest(Control.SET_PERMISSION_MODE, "yolo"))
    with pytest.raises(ControlFailed, match="turn_failed: the agent does not want to"):
        fleet.client.control(turn, ControlRequest(Control.SEND, "please fail"))
    with pytest.raises(ControlFailed, match="timeout: the agent has not answered in time"):
        fleet.client.control(turn, ControlRequest(Control.SEND, "please hang"), timeout_s=0.5)


def test_request_to_nobody_says_why(fleet: LiveFleet, recording: Path) -> None:
    done = fleet.run(fleet.recorded(recording))
    with pytest.raises(ControlRefused, match="has ended already"):
        fleet.client.control(done.turn_id, INTERRUPT)
    with pytest.raises(UnknownTurn):
        fleet.client.control("nobody's", INTERRUPT)
    slow = slow_recording(fleet.root / "plain.jsonl", recording, 2000)
    plain = fleet.client.enqueue(fleet.recorded(slow))
    until(lambda: fleet.has(plain, "session_started"), "the agent")
    with pytest.raises(ControlRefused, match=r"scripted takes no requests .*runturn cancel.*: talkative"):
        fleet.client.control(plain, INTERRUPT)
    fleet.client.cancel(plain)


def test_request_under_way_when_the_agent_ends_is_answered(fleet: LiveFleet, turn: str) -> None:
    with pytest.raises(ControlTimeout):
        fleet.client.control(turn, ControlRequest(Control.SEND, "hang"), request_id="h", timeout_s=0.01)
