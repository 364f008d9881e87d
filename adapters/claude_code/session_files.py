"""Exact usage from the records that Claude Code keeps of a session.

`$CLAUDE_CONFIG_DIR/projects/<workspace>/<session>.jsonl`, and `<session>/subagents/agent-*.jsonl` for subagents.
Every content block of a message is one line with the same `message.id`; the last line has the final usage.
"""

from __future__ import annotations

from collections.abc import Iterable
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


def read_usage(lines: Iterable[bytes], state: TurnState) -> Usage:
    """Sum up the final usage of each completed message."""
    messages: dict[str, tuple[str, dict[str, Any], bool]] = {}
    for line in lines:
        if b'"assistant"' in line:
            _collect(line, messages)
    by_model: dict[str, ModelUsage] = {}
    for model, usage, _ in messages.values():
        by_model[model] = by_model.get(model, ModelUsage(cost_usd=0.0)) + _billed(model, usage)
    complete = all(finished for _, _, finished in messages.values()) and not state.awaits_answer
    return Usage(by_model, UsageSource.SESSION_FILES, complete)


def _collect(line: bytes, messages: dict[str, tuple[str, dict[str, Any], bool]]) -> None:
    try:
        record = orjson.loads(line)
        message = record["message"]
        model, usage = message["model"], message["usage"]
        if record["type"] != "assistant" or model == _SYNTHETIC:
            return
        messages[message["id"]] = (model, usage, message.get("stop_reason") is not None)
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
