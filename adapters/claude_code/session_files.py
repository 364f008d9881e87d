"""Exact usage from the records that Claude Code keeps of a session.

`$CLAUDE_CONFIG_DIR/projects/<workspace>/<session>.jsonl`, and `<session>/subagents/agent-*.jsonl` for subagents.
Every content block of a message is one line with the same `message.id`; the last line has the final usage.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import orjson

from adapters.claude_code.prices import cost_usd
from adapters.command import SessionFiles
from adapters.fold import TurnState
from adapters.usage import ModelUsage, Tokens, Usage, UsageSource

_SYNTHETIC = "<synthetic>"


def session_files(session_id: str) -> SessionFiles:
    """Where the records of a session lie. The id is unique, so the workspace's directory need not be known."""
    return SessionFiles(
        root_env="CLAUDE_CONFIG_DIR",
        root_default=".claude",
        patterns=(
            f"projects/*/{session_id}.jsonl",
            f"projects/*/{session_id}/subagents/agent-*.jsonl",
        ),
    )


@dataclass(frozen=True, slots=True)
class _Message:
    """One message of the model, as its last record tells."""

    model: str
    usage: dict[str, Any]
    finished: bool  # False: cut off, so that its output is a placeholder


def read_usage(lines: Iterable[bytes], state: TurnState) -> Usage:
    """Sum up the usage of each message. Incomplete if one was cut off, or the stream saw more."""
    messages: dict[str, _Message] = {}
    for line in lines:
        if b'"assistant"' in line:
            _collect(line, messages)
    by_model: dict[str, ModelUsage] = {}
    for message in messages.values():
        billed = _billed(message.model, message.usage)
        by_model[message.model] = by_model[message.model] + billed if message.model in by_model else billed
    usage = Usage(by_model, UsageSource.SESSION_FILES)
    finished = all(message.finished for message in messages.values()) and not state.awaits_answer
    return replace(usage, complete=finished and usage.tokens.prompt >= state.seen_tokens.prompt)


def _collect(line: bytes, messages: dict[str, _Message]) -> None:
    try:
        record = orjson.loads(line)
        message = record["message"]
        model, usage = message["model"], message["usage"]
        if record["type"] == "assistant" and model != _SYNTHETIC:
            # A message that was cut off may carry a made-up stop_reason; only a finished one has stop_details.
            messages[message["id"]] = _Message(model, usage, "stop_details" in message)
    except (ValueError, KeyError, TypeError):
        return  # the last line of a killed process may be half a record


def _billed(model: str, usage: dict[str, Any]) -> ModelUsage:
    tokens = Tokens(
        usage.get("input_tokens") or 0,
        usage.get("output_tokens") or 0,
        usage.get("cache_read_input_tokens") or 0,
        usage.get("cache_creation_input_tokens") or 0,
    )
    long_lived = (usage.get("cache_creation") or {}).get("ephemeral_1h_input_tokens") or 0
    return ModelUsage(tokens, cost_usd(model, tokens, long_lived))
