"""The agent `scripted`, as far as it is a value; that it replays is tested where processes are."""

from __future__ import annotations

from typing import Any

import pytest

from adapters.claude_code.adapter import ClaudeCode
from adapters.contract import Adapter, Exit
from adapters.errors import InvalidRequest
from adapters.protocol.request import TurnRequest
from adapters.replay_agent import ReplayAgent
from adapters.turn_state import TurnState, fold
from tests.support.recordings.claude_code import load


def request(**options: Any) -> TurnRequest:
    return TurnRequest.parse({"prompt": "x", "workspace": "/w", "agent": "scripted", "options": options})


def test_adapter_fulfils_the_contract() -> None:
    agent: Adapter = ReplayAgent(ClaudeCode())  # mypy proves it

    assert agent.name == "scripted"


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"nope": 1}, "options.nope"),
        ({}, "options.recording"),
        ({"recording": "/a.jsonl", "lines": ["{}"]}, "options.recording"),
        ({"lines": ["{}"], "speed": 0}, "options.speed"),
        ({"lines": ["{}"], "speed": -1}, "options.speed"),
        ({"lines": ["{}"], "exit_code": 256}, "options.exit_code"),
        ({"lines": ["{}"], "exit_code": -1}, "options.exit_code"),
        ({"lines": [5]}, "options.lines.0"),
    ],
)
def test_bad_option_is_refused_by_its_name(options: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        ReplayAgent(ClaudeCode()).check(request(**options))

    assert refused.value.field == field


def test_either_kind_of_recording_will_do() -> None:
    ReplayAgent(ClaudeCode()).check(request(recording="/srv/a.jsonl"))
    ReplayAgent(ClaudeCode()).check(request(lines=["{}"], speed=2, exit_code=255))


def test_replay_is_judged_as_what_was_recorded() -> None:
    agent, state = ReplayAgent(ClaudeCode()), TurnState()
    fold(agent.parser(), state, load("h5_529_forever").lines)

    error = agent.judgement(state, Exit(1)).error

    assert error is not None
    assert error.kind == "overloaded"
