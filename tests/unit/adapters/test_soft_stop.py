"""How Claude Code is asked to end by itself, and what is made of its answer."""

from __future__ import annotations

import json

import pytest

from adapters.claude_code.adapter import ClaudeCode
from adapters.contract import Exit, Session
from adapters.protocol.request import TurnRequest
from adapters.replay_agent import ReplayAgent
from adapters.turn_state import TurnState, fold

SESSION = Session("11111111-2222-3333-4444-555555555555", resume=False)


def settings_of(**limit: object) -> list[str]:
    """The settings that a turn is given."""
    request = TurnRequest.parse({"prompt": "Fix the bug", "workspace": "/srv/repo", **limit})
    argv = ClaudeCode().build(request, SESSION).argv
    return [word.removeprefix("--settings=") for word in argv if word.startswith("--settings=")]


@pytest.mark.parametrize("limit", [{"max_total_tokens": 5}, {"deadline": "2031-01-01T00:00:00Z"}])
def test_turn_with_a_limit_that_we_watch_looks_for_the_word_to_end(limit: dict[str, object]) -> None:
    (settings,) = settings_of(**limit)
    (entry,) = json.loads(settings)["hooks"]["PreToolUse"]
    assert entry["matcher"] == "*"


def test_turn_without_one_does_not_pay_for_a_look() -> None:
    assert settings_of() == []


def test_agent_that_knows_no_such_way_says_so() -> None:
    assert ReplayAgent(ClaudeCode()).soft_stop("Deadline exceeded") is None


def test_word_to_end_denies_the_tool_and_stops_the_agent() -> None:
    text = ClaudeCode().soft_stop("Deadline exceeded")
    assert text is not None
    assert b"\n" not in text
    said = json.loads(text)
    assert (said["continue"], said["stopReason"]) == (False, "Deadline exceeded")
    assert said["hookSpecificOutput"] == {
        "hookEventName": "PreToolUse",
        "permissionDecision": "deny",
        "permissionDecisionReason": "Deadline exceeded",
    }


def test_agent_that_a_hook_has_stopped_was_not_successful() -> None:
    result = {
        "type": "result",
        "subtype": "success",
        "is_error": False,
        "num_turns": 4,
        "result": "",
        "stop_reason": "tool_use",
        "terminal_reason": "hook_stopped",
        "session_id": SESSION.session_id,
        "total_cost_usd": 0.0,
        "usage": {},
        "modelUsage": {},
    }
    state = TurnState()
    fold(ClaudeCode().parser(), state, [json.dumps(result).encode()], None)
    error = ClaudeCode().judgement(state, Exit(0)).error
    assert error is not None
    assert error.kind == "turn_cancelled"
