"""What is known of an attempt whose host cannot tell it again: as much as its stored events say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import orjson

from adapters.events import AssistantText, Event, SessionStarted, TokenUsage
from adapters.turn_state import TurnState
from adapters.usage import Tokens, Usage
from workers.events.model import AttemptEnded

# Those that a result, or a bill, is made of.
_READERS: Mapping[str, Callable[[Mapping[str, Any]], Event]] = {
    SessionStarted.name: lambda fields: SessionStarted(
        fields["session_id"], fields["model"], fields["agent_version"]
    ),
    AssistantText.name: lambda fields: AssistantText(fields["text"], fields["subagent"]),
    TokenUsage.name: lambda fields: TokenUsage(fields["model"], Tokens(**fields["added"])),
}


def recall(first_seq: int, lines: Iterable[bytes]) -> tuple[TurnState, int]:
    """The state of an attempt from its stored events, numbered from `first_seq`, and the number of its next one.

    Its end does not count: a worker that was killed before it could book that may have stored it.
    """
    state, next_seq = TurnState(), first_seq
    for line in lines:
        fields = orjson.loads(line)
        if fields["event"] == AttemptEnded.name:
            break
        next_seq += 1
        reader = _READERS.get(fields["event"])
        if reader is not None:
            state.apply([reader(fields)])
    return state, next_seq


def at_least(used: Usage) -> Usage:
    """What is known of the usage of an attempt whose end nobody saw: there may have been more."""
    return replace(used, complete=False)
