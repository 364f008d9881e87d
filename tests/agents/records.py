"""Recorded lines, without the parts that are long and say nothing. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from adapters.fold import Parser, TurnState, fold

_LONG = 300  # characters of a text that nobody judges by
_DROPPED = frozenset({"base_instructions", "tools", "slash_commands", "agents", "skills", "plugins", "attachment"})
_UNREAD = frozenset({"queue-operation", "file-history-snapshot", "attachment"})  # records that no adapter reads


def told(parser: Parser, stdout: str) -> str | None:
    """Return the session that an agent has named by itself."""
    state = TurnState()
    fold(parser, state, [line.encode() for line in stdout.splitlines()])
    return state.session_id


def lines_of(lines: Iterable[str]) -> str:
    """Return them as a file, blank ones left out."""
    return "".join(f"{line}\n" for line in lines if line)


def small(line: str) -> str:
    """Return a line with its long texts cut; empty for a record that nobody reads."""
    try:
        record = json.loads(line)
    except ValueError:
        return line
    if isinstance(record, dict) and record.get("type") in _UNREAD:
        return ""
    return json.dumps(_shorter(record), separators=(",", ":"), ensure_ascii=False)


def _shorter(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _shorter(inner) for name, inner in value.items() if name not in _DROPPED}
    if isinstance(value, list):
        return [_shorter(inner) for inner in value]
    return value[:_LONG] if isinstance(value, str) else value
