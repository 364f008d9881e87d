"""Recorded lines, without the parts that are long and say nothing. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from adapters.turn_state import Parser, TurnState, fold

_LONG = 300  # characters of a text that nobody judges by
_DROPPED = frozenset({"base_instructions", "tools", "slash_commands", "agents", "skills", "plugins", "attachment"})
# Of session files, by agent: the records that its adapter reads. All others are left out.
_READ = {
    "claude-code": frozenset({"assistant", "api-request"}),
    "codex": frozenset(
        {"session_meta", "turn_context", "token_usage_record", "event_msg", "response_item", "compacted"}
    ),
}
# Of Codex's records, those that only repeat what was said.
_SAID = frozenset(
    {"message", "additional_tools", "item_completed", "thread_settings_applied", "user_message", "agent_message"}
)


def told(parser: Parser, stdout: str) -> str | None:
    """Return the session that an agent has named by itself."""
    state = TurnState()
    fold(parser, state, [line.encode() for line in stdout.splitlines()])
    return state.session_id


def lines_of(lines: Iterable[str]) -> str:
    """Return them as a file, blank ones left out."""
    return "".join(f"{line}\n" for line in lines if line)


def remembered(agent: str, line: str) -> str:
    """Return a record of a session file in the same way; empty for one that its adapter does not read."""
    try:
        record = json.loads(line)
    except ValueError:
        return line
    unread = agent in _READ and record.get("type") not in _READ[agent]
    payload = record.get("payload") or {}
    said = payload.get("type") in _SAID and payload.get("role") != "assistant"
    return "" if unread or said else small(line)


def small(line: str) -> str:
    """Return a line with its long texts cut."""
    try:
        record = json.loads(line)
    except ValueError:
        return line
    return json.dumps(_shorter(record), separators=(",", ":"), ensure_ascii=False)


def _shorter(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _shorter(inner) for name, inner in value.items() if name not in _DROPPED}
    if isinstance(value, list):
        return [_shorter(inner) for inner in value]
    return value[:_LONG] if isinstance(value, str) else value
