"""The hooks' answers, word for word as Claude Code's hook protocol has them."""

from __future__ import annotations

from typing import Any

import pytest

from adapters.claude_sdk.gates import HOOKS, Gates
from adapters.claude_sdk.options import ClaudeSdkOptions
from tests.support.recordings.wires import Desk

CALL = {"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": "ls"}}


def gates(reason: str | None = None, **options: Any) -> Gates:
    desk = Desk()
    desk.reason = reason
    return Gates(ClaudeSdkOptions.parse(options), desk)


@pytest.mark.parametrize("reason", ["Deadline exceeded", "Token budget exhausted"])
async def test_tool_beyond_a_limit_is_denied_with_its_reason_and_the_agent_ends(reason: str) -> None:
    answer = await gates(reason).answer(CALL)
    assert answer["hookSpecificOutput"] == {
        "hookEventName": "PreToolUse",
        "permissionDecision": "deny",
        "permissionDecisionReason": reason,
    }
    assert (answer["continue_"], answer["stopReason"]) == (False, reason)


@pytest.mark.parametrize("event", [event for event, _ in HOOKS])
async def test_nothing_is_said_where_nothing_stands_against_it(event: str) -> None:
    assert await gates().answer({**CALL, "hook_event_name": event}) == {}


@pytest.mark.parametrize(("stops", "answered"), [(True, {"continue_", "stopReason"}), (False, set())])
async def test_structured_output_ends_the_turn_unless_told_otherwise(stops: bool, answered: set[str]) -> None:
    output = {"hook_event_name": "PostToolUse", "tool_name": "StructuredOutput", "tool_input": {}}
    assert set(await gates(stop_on_structured_output=stops).answer(output)) == answered


async def test_output_is_taken_at_any_limit() -> None:
    given = {**CALL, "tool_name": "StructuredOutput"}
    assert await gates("Deadline exceeded").answer(given) == {}
