"""What producers say to turns of the real Claude Code, and what the model's API sees of it."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psutil
import pytest

from adapters.live import Control, ControlRequest
from adapters.protocol.result import Status
from tests.fakes.model_api import ModelApi, Reply, Script, Text, Usage, replies
from tests.fakes.model_api.cli import claude_binary
from tests.integration.conftest import claude_fleet
from tests.integration.turns.test_bills import SONNET, billed, booked, in_ledger
from tests.support.fleets.fleet import Fleet
from tests.support.processes import signed
from tests.support.waiting import until
from workers.errors import ControlFailed, ControlRefused

OPUS = "claude-opus-4-5"
DONE = Reply((Text("done"),), Usage(50, 30, 40, 6))


def waiting(name: str, *rest: Reply) -> Script:
    """Has a tool wait until there is a file of the script's name."""
    command = f"touch {name}.begun; until [ -e {name} ]; do sleep 0.05; done"
    return Script(name, (Reply((replies.bash(command),), Usage(100, 20, 30, 4)), *rest))


SCRIPTS = (
    waiting("interrupted"),
    waiting("switched", DONE, DONE),
    waiting("told", DONE, DONE),
    waiting("lost", DONE),
)


class Place:
    """A fleet, and the API that its agents talk to."""

    def __init__(self, fleet: Fleet, api: ModelApi) -> None:
        self.fleet = fleet
        self.api = api

    def begin(self, script: str) -> str:
        """A turn whose tool runs."""
        request = self.fleet.request(f"do it [script:{script}]", agent="claude-sdk", options={"model": SONNET})
        turn_id = self.fleet.client.enqueue(request)
        until((self.fleet.workspace / f"{script}.begun").exists, "the tool")
        return turn_id

    def go_on(self, script: str) -> None:
        """Let the tool end."""
        (self.fleet.workspace / script).touch()

    def say(self, turn_id: str, control: Control, value: str | None = None, **given: Any) -> dict[str, Any]:
        """Ask the agent."""
        return self.fleet.client.control(turn_id, ControlRequest(control, value), **given)

    def assert_booked(self, turn_id: str, script: str) -> None:
        """What the ledger has of a turn is what the API charged, and no event is missing."""
        result = self.fleet.result(turn_id)
        assert booked(result) == in_ledger(self.fleet, turn_id) == billed(self.api, script)
        events = self.fleet.events(turn_id)
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One for all of them."""
    agents = json.dumps({"claude-sdk": {"command": str(claude_binary())}})
    with claude_fleet(tmp_path_factory.mktemp("said"), *SCRIPTS, agents=agents) as (fleet, api):
        yield Place(fleet, api)


def test_interrupted_amid_a_tool_the_turn_ends_with_its_bill(place: Place) -> None:
    turn_id = place.begin("interrupted")
    assert place.say(turn_id, Control.SERVER_INFO)["commands"]
    assert place.say(turn_id, Control.INTERRUPT, request_id="stop") == {}
    result = place.fleet.result(turn_id)
    assert result.error is not None
    assert (result.status, result.error.kind, result.attempts) == (Status.CANCELLED, "turn_cancelled", 1)
    assert place.say(turn_id, Control.INTERRUPT, request_id="stop") == {}, "it stands in the ledger"
    with pytest.raises(ControlRefused, match="has already finished"):
        place.say(turn_id, Control.INTERRUPT)
    place.assert_booked(turn_id, "interrupted")


def test_next_request_goes_to_the_model_that_was_set(place: Place) -> None:
    turn_id = place.begin("switched")
    with pytest.raises(ControlRefused, match="there is no permission mode 'yolo'; known: default, acceptEdits"):
        place.say(turn_id, Control.SET_PERMISSION_MODE, "yolo")
    assert place.say(turn_id, Control.SET_PERMISSION_MODE, "plan") == {"permission_mode": "plan"}
    assert place.say(turn_id, Control.SET_MODEL, OPUS) == {"model": OPUS}
    place.go_on("switched")
    result = place.fleet.result(turn_id)
    assert result.status is Status.COMPLETED
    asked = [(request.model, request.prompt) for request in place.api.bill("switched").requests]
    # Claude Code tries a model that it does not know, and has that in no account of its own.
    assert asked == [(SONNET, "do it [script:switched]"), (OPUS, "Hi"), (OPUS, "do it [script:switched]")]
    assert not result.usage_complete


def test_message_reaches_the_model_as_it_was_sent(place: Place) -> None:
    turn_id = place.begin("told")
    place.say(turn_id, Control.SEND, "/compact and look at `notes`")
    place.go_on("told")
    assert place.fleet.result(turn_id).status is Status.COMPLETED
    assert "/compact and look at `notes`" in str(place.api.bill("told").requests)
    place.assert_booked(turn_id, "told")


def test_worker_killed_before_the_answer_leaves_a_turn_that_goes_on(place: Place) -> None:
    turn_id = place.begin("lost")
    agent = psutil.Process(signed(place.fleet.state.spool / f"{turn_id}.1", "agent"))
    agent.suspend()
    said: list[Exception] = []

    def ask() -> None:
        try:
            place.say(turn_id, Control.CONTEXT_USAGE, request_id="r")
        except ControlFailed as error:
            said.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    until(lambda: any(event["event"] == "control_requested" for event in place.fleet.events(turn_id)), "it")
    (worker,) = place.fleet.workers
    worker.kill()
    agent.resume()
    with closing(sqlite3.connect(place.fleet.state.root / "ledger.sqlite3")) as books, books:
        books.execute("UPDATE turns SET owner_expires = 0 WHERE turn_id = ?", (turn_id,))  # as time does
    place.fleet.start_worker()
    asking.join(120)
    (error,) = said
    assert "worker_lost: the worker was lost" in str(error)
    usage = place.say(turn_id, Control.CONTEXT_USAGE)
    assert usage["maxTokens"] > 0
    assert "[script:lost]" not in str(usage), "an event holds no prompt"
    place.go_on("lost")
    assert place.fleet.result(turn_id).status is Status.COMPLETED
    place.assert_booked(turn_id, "lost")
