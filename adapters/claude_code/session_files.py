"""Exact usage from Claude Code's records of a session.

`$CLAUDE_CONFIG_DIR/projects/<workspace>/<session>.jsonl`, and `<session>/subagents/agent-*.jsonl` for subagents.
Every content block of a message is one line with the same `message.id`; the last line has the final usage. Claude
Code writes them up to 0.2 s after it printed the message, so those of an agent that was killed may lack its last
messages: the output has them by the same ids.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from adapters.claude_code.known import asks_aside, read_version
from adapters.claude_code.prices import cost_usd
from adapters.claude_code.tokens import long_lived_cache, read_tokens
from adapters.claude_code.tools import ASKING
from adapters.command import SessionFiles
from adapters.toolkit.json_lines import decode
from adapters.turn_state import TurnState
from adapters.usage import ModelUsage, Usage, UsageSource, sum_by_model

_SYNTHETIC = "<synthetic>"


def session_files(session_id: str) -> SessionFiles:
    """Return the location of a session's records. The id is unique, so any workspace directory matches."""
    return SessionFiles(
        root_env="CLAUDE_CONFIG_DIR",
        root_default=".claude",
        patterns=(f"projects/*/{session_id}.jsonl", *subagent_files(session_id).patterns),
    )


def subagent_files(session_id: str) -> SessionFiles:
    """Return the location of the records of a session's subagents."""
    return SessionFiles(
        root_env="CLAUDE_CONFIG_DIR",
        root_default=".claude",
        patterns=(f"projects/*/{session_id}/subagents/agent-*.jsonl",),
    )


@dataclass(frozen=True, slots=True)
class _Message:
    """One message of the model, from its last record or from the output."""

    model: str
    billed: ModelUsage
    finished: bool  # False: cut off, so its output is a placeholder
    asking: bool  # called a tool that calls a model itself


def read_usage(lines: Iterable[bytes], state: TurnState) -> Usage:
    """Return the sum of all messages, recorded or printed; incomplete if one was cut off."""
    messages: dict[str, _Message] = {}
    shortened = False
    for line in lines:
        if b'"assistant"' in line:
            _collect(line, messages)
        shortened |= b'"compact_boundary"' in line and _shortens(line)
    _add_printed(messages, state)
    by_model = sum_by_model((message.model, message.billed) for message in messages.values())
    usage = Usage(_priced(by_model, state), UsageSource.SESSION_FILES)
    whole = all(message.finished for message in messages.values())
    cut = state.awaits_answer or state.answer_lost or any(report.contradictory for report in state.reports)
    aside = asks_aside(read_version(state.agent_version)) or shortened
    aside |= any(message.asking for message in messages.values()) or bool(
        ASKING.intersection(state.tools.values())
    )
    return replace(
        usage, complete=whole and not cut and not aside and usage.tokens.prompt >= state.seen_tokens.prompt
    )


def final_answer(lines: Iterable[bytes]) -> str | None:
    """Return the text that the main agent's last record ends its turn with; None if it did not end it."""
    answer: str | None = None
    for line in lines:
        if b'"assistant"' not in line and b'"user"' not in line:
            continue
        try:
            record = decode(line)
            if record["type"] in ("assistant", "user") and not record.get("isSidechain"):
                answer = _answer(record["message"]) if record["type"] == "assistant" else None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None  # whatever it says may have come after the answer
    return answer


def _answer(message: dict[str, Any]) -> str | None:
    # Only a finished message has stop_details.
    if message["stop_reason"] != "end_turn" or "stop_details" not in message or message["model"] == _SYNTHETIC:
        return None
    return "".join(block["text"] for block in message["content"] if block["type"] == "text") or None


def _collect(line: bytes, messages: dict[str, _Message]) -> None:
    try:
        record = decode(line)
        message = record["message"]
        model = message["model"]
        if record["type"] == "assistant" and isinstance(model, str) and model != _SYNTHETIC:
            # A cut message may have an invented stop_reason; only a finished one has stop_details.
            number, finished = message["id"], "stop_details" in message
            asking = (number in messages and messages[number].asking) or _asks(message.get("content"))
            messages[number] = _Message(model, _billed(model, message["usage"]), finished, asking)
    except (ValueError, KeyError, TypeError, AttributeError):
        return  # the last line of a killed process may be half a record


def _add_printed(messages: dict[str, _Message], state: TurnState) -> None:
    """Add the messages that the agent printed; of one that is recorded, too, the greater usage counts."""
    for number, answer in state.answers.items():
        recorded = messages.get(number)
        if recorded is None:
            messages[number] = _Message(answer.model, answer.billed, answer.final, asking=False)
        else:
            billed = max(recorded.billed, answer.billed, key=lambda used: (used.tokens.prompt, used.tokens.total))
            messages[number] = replace(recorded, billed=billed, finished=recorded.finished or answer.final)


def _shortens(line: bytes) -> bool:
    """Return True if the conversation was compacted there, by a model's summary that no session file bills."""
    try:
        record = decode(line)
        return bool(record["type"] == "system" and record["subtype"] == "compact_boundary")
    except (ValueError, KeyError, TypeError):
        return False


def _asks(content: object) -> bool:
    """Return True if a block calls a tool that calls a model itself."""
    blocks = content if isinstance(content, list) else ()
    return any(isinstance(block, dict) and block.get("name") in ASKING for block in blocks)


def _billed(model: str, usage: dict[str, Any]) -> ModelUsage:
    tokens = read_tokens(usage)
    return ModelUsage(tokens, cost_usd(model, tokens, long_lived_cache(usage)))


def _priced(by_model: dict[str, ModelUsage], state: TurnState) -> dict[str, ModelUsage]:
    """Return the usage with Claude Code's costs, if it counted the same tokens: it knows more prices."""
    reported = state.report.by_model if state.report else {}
    return {
        model: reported[model] if model in reported and reported[model].tokens == used.tokens else used
        for model, used in by_model.items()
    }
