"""Restores what the stored events say of an attempt that its host can no longer replay."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import orjson

from adapters.events import AssistantText, Event, SessionStarted, TokenUsage
from adapters.turn_state import TurnState
from adapters.usage import Tokens, Usage
from workers.events.model import AttemptEnded

# Events that make up a result or its usage.
_READERS: Mapping[str, Callable[[Mapping[str, Any]], Event]] = {
    SessionStarted.name: lambda fields: SessionStarted(
        fields["session_id"], fields["model"], fields["agent_version"]
    ),
    AssistantText.name: lambda fields: AssistantText(fields["text"], fields["subagent"]),
    TokenUsage.name: lambda fields: TokenUsage(
        fields["model"],
        Tokens(**fields["added"]),
        fields["output_known"],
        answer=fields["answer"],
        cost_usd=fields["cost_usd"],
    ),
}


def recall(first_seq: int, lines: Iterable[bytes]) -> tuple[TurnState, int]:
    """Return an attempt's state from its stored events, numbered from `first_seq`, and the next event's number.

    Its end does not count: a worker killed before booking it may have stored it.
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
    """Mark the usage of an attempt whose end was not observed as incomplete: there may have been more."""
    return replace(used, complete=False)
