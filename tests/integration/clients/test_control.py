"""What producers say to turns that run: it reaches the agent, once, and the ledger tells of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from adapters.live import Control, ControlRequest, Verdict
from adapters.protocol.result import Status
from ops.errors import UnknownTurn
from tests.support.fleets.fleet import slow_recording
from tests.support.fleets.live_fleet import LiveFleet, Talking
from tests.support.waiting import until
from workers.app import create_app
from workers.client.control import TurnControl, message
from workers.errors import ControlFailed, ControlRefused, ControlTimeout

INTERRUPT = ControlRequest(Control.INTERRUPT)


def begin(fleet: LiveFleet, turn_id: str, request: ControlRequest, request_id: str) -> None:
    """Ask, without waiting for an answer; returns when the agent is at it."""
    before = len(fleet.noted(turn_id, "controls"))
    said = message(turn_id, request, request_id, "bob", fleet.ledger.clock() + 60)
    saying = TurnControl(create_app(fleet.broker.url), fleet.ledger, said)
    assert saying.say() is False
    until(lambda: len(fleet.noted(turn_id, "controls")) > before, "the agent to be asked")


def change_worker(fleet: LiveFleet) -> None:
    """Have the next worker take over, as in a redeploy."""
    worker = fleet.workers.pop()
    worker.terminate()
    assert worker.wait() == 0
    fleet.start_worker()


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveFleet]:
    """A fleet with a worker."""
    with LiveFleet(tmp_path_factory.mktemp("control")) as fleet:
        fleet.start_worker()
        yield fleet


@pytest.fixture
def turn(fleet: LiveFleet, recording: Path) -> Iterator[Talking]:
    """A turn that runs."""
    turn = fleet.talking(recording)
    yield turn
    turn.finish()


def test_request_is_done_once_and_stands_in_the_ledger(fleet: LiveFleet, turn: Talking) -> None:
    client = fleet.client
    assert client.control(turn, ControlRequest(Control.SERVER_INFO)) == {"commands": ["compact"]}
    for _ in range(2):
        assert client.control(turn, INTERRUPT, request_id="stop", by="ann") == {}
    model = ControlRequest(Control.SET_MODEL, "claude-opus-5")
    assert client.control(turn, model, request_id="model", by="ann") == {}
    assert fleet.noted(turn, "controls") == [
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


def test_agent_that_refuses_or_fails_or_is_silent_is_told_apart(fleet: LiveFleet, turn: Talking) -> None:
    with pytest.raises(ControlRefused, match="has to be default or plan"):
        fleet.client.control(turn, ControlRequest(Control.SET_PERMISSION_MODE, "yolo"))
    with pytest.raises(ControlFailed, match="turn_failed: the agent does not want to"):
        fleet.client.control(turn, ControlRequest(Control.SEND, "please fail"))
    with pytest.raises(ControlFailed, match="timeout: the agent did not answer in time"):
        until(lambda: _is_taken(fleet, turn, "please hang"), "the worker to take it in time")


def _is_taken(fleet: LiveFleet, turn: Talking, text: str) -> bool:
    try:
        fleet.client.control(turn, ControlRequest(Control.SEND, text), timeout_s=0.5)
    except ControlTimeout:
        return False
    return True


def test_request_to_nobody_says_why(fleet: LiveFleet, recording: Path) -> None:
    done = fleet.run(fleet.recorded(recording))
    with pytest.raises(ControlRefused, match="has already finished"):
        fleet.client.control(done.turn_id, INTERRUPT)
    with pytest.raises(UnknownTurn):
        fleet.client.control("nobody's", INTERRUPT)
    slow = slow_recording(fleet.root / "plain.jsonl", recording, 2000)
    plain = fleet.client.enqueue(fleet.recorded(slow))
    until(lambda: fleet.has(plain, "session_started"), "the agent")
    with pytest.raises(
        ControlRefused,
        match=r"scripted takes no requests .*runturn cancel.*: claude-sdk, talkative",
    ):
        fleet.client.control(plain, INTERRUPT)
    fleet.client.cancel(plain)


def test_request_under_way_when_the_agent_ends_is_answered(fleet: LiveFleet, recording: Path) -> None:
    turn = fleet.talking(recording)
    begin(fleet, turn, ControlRequest(Control.SEND, "hang"), "h")
    fleet.client.cancel(turn)
    assert fleet.result(turn).status is Status.CANCELLED
    for _ in range(2):
        with pytest.raises(ControlFailed, match="turn_ended: the agent ended before it carried out the request"):
            fleet.client.control(turn, ControlRequest(Control.SEND, "hang"), request_id="h")


def test_next_worker_says_what_was_lost_and_tells_all_events_once(
    fleet: LiveFleet, turn: Talking, recording: Path
) -> None:
    fleet.client.control(turn, INTERRUPT, request_id="before")
    begin(fleet, turn, ControlRequest(Control.SEND, "hang"), "h")
    change_worker(fleet)
    with pytest.raises(ControlFailed, match="worker_lost: the worker was lost"):
        fleet.client.control(turn, ControlRequest(Control.SEND, "hang"), request_id="h")
    assert fleet.client.control(turn, INTERRUPT, request_id="before") == {}
    assert fleet.client.control(turn, INTERRUPT, request_id="after") == {}
    turn.finish()
    assert fleet.result(turn).status is Status.COMPLETED
    assert [name for name, _ in fleet.noted(turn, "controls")] == ["interrupt", "send", "interrupt"]
    events = fleet.events(turn)
    assert [event["seq"] for event in events] == [*range(1, len(events) + 1)]
    quiet = fleet.run(fleet.request(agent="talkative", options={"recording": str(recording)})).turn_id
    told = [event["event"] for event in events if "aside" not in event]
    assert told == [event["event"] for event in fleet.events(quiet)]


def test_question_is_answered_once(fleet: LiveFleet, recording: Path) -> None:
    turn = fleet.talking(recording, prompt="ask me")
    (asked,) = until(lambda: fleet.has(turn, "permission_requested"), "the question")
    assert (asked["tool"], asked["tool_use_id"]) == ("Bash", "toolu_1")
    assert asked["input"] == {"command": "rm -rf /", "env": {"KEY": "[redacted:key]"}}
    answer = fleet.client.answer(turn, asked["request_id"], Verdict(False, "not that"), by="ann")
    assert (answer["allowed"], answer["reason"], answer["by"]) == (False, "not that", "ann")
    assert until(lambda: fleet.noted(turn, "verdicts"), "the agent to hear of it") == [[False, "not that"]]
    assert fleet.client.answer(turn, asked["request_id"], Verdict(False))["by"] == "ann"
    with pytest.raises(ControlRefused, match="toolu_1 was already denied by ann"):
        fleet.client.answer(turn, asked["request_id"], Verdict(True))
    with pytest.raises(ControlRefused, match="the agent has no open question toolu_2"):
        fleet.client.answer(turn, "toolu_2", Verdict(True))
    turn.finish()


def test_question_that_nobody_answers_is_over_in_time(fleet: LiveFleet, recording: Path) -> None:
    turn = fleet.talking(recording, prompt="ask soon")
    assert until(lambda: fleet.noted(turn, "verdicts"), "the agent to give up") == [None]
    with pytest.raises(ControlRefused, match="toolu_1 is closed: no answer in time"):
        fleet.client.answer(turn, "toolu_1", Verdict(True))
    turn.finish()


def test_next_worker_asks_again_and_takes_the_answer_that_stands(fleet: LiveFleet, recording: Path) -> None:
    turn = fleet.talking(recording, prompt="ask me")
    until(lambda: fleet.has(turn, "permission_requested"), "the question")
    change_worker(fleet)
    assert fleet.client.answer(turn, "toolu_1", Verdict(True, "go on"))["allowed"] is True
    change_worker(fleet)
    until(lambda: fleet.noted(turn, "verdicts") == [[True, "go on"]] * 2, "the agent to hear of it twice")
    assert len(fleet.has(turn, "permission_requested")) == 2
    turn.finish()


def test_question_of_an_agent_that_has_ended_is_over(fleet: LiveFleet, recording: Path) -> None:
    turn = fleet.talking(recording, prompt="ask me")
    until(lambda: fleet.has(turn, "permission_requested"), "the question")
    turn.finish()
    assert fleet.result(turn).status is Status.COMPLETED
    (answered,) = fleet.has(turn, "permission_answered")
    assert answered["allowed"] is None
    with pytest.raises(ControlRefused, match="toolu_1 is closed: the agent is no longer waiting for an answer"):
        fleet.client.answer(turn, "toolu_1", Verdict(True))
