"""Claude Code's `result` line: its own final word on the turn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from adapters.claude_code.tokens import read_model_tokens, read_tokens
from adapters.events import Report
from adapters.fields import integer, number, optional_string, string
from adapters.usage import ModelUsage, Tokens


def read_report(record: dict[str, Any], before: Mapping[str, ModelUsage]) -> Report:
    """Read a `result` line. Raises KeyError, TypeError, ValueError or AttributeError if it has another shape.

    `before` is what earlier results of the same process reported. Claude Code 2.1.330 counts `modelUsage` over the
    whole session, earlier processes included, and says what is new beside it; 2.1.197 counts over the process.
    """
    news = record.get("model_usage_since_last_result")
    by_model = _by_model(record.get("modelUsage") or {}) if news is None else _sum(before, _by_model(news))
    return Report(
        subtype=string(record["subtype"]),
        is_error=record.get("is_error") is True,
        text=record["result"] if isinstance(record.get("result"), str) else "",
        structured_output=record.get("structured_output"),
        by_model=by_model,
        contradictory=_contradict(read_tokens(record.get("usage") or {}), by_model),
        num_turns=integer(record.get("num_turns")),
        duration_ms=integer(record.get("duration_ms")),
        duration_api_ms=integer(record.get("duration_api_ms")),
        stop_reason=optional_string(record.get("stop_reason")),
        terminal_reason=optional_string(record.get("terminal_reason")),
        api_status=integer(record.get("api_error_status")),
        errors=tuple(map(str, record.get("errors") or ())),
        denied_tools=_denied(record.get("permission_denials")),
    )


def _denied(denials: list[dict[str, Any]] | None) -> tuple[str, ...]:
    return tuple(str(denial["tool_name"]) for denial in denials) if denials else ()


def _by_model(model_usage: dict[str, dict[str, Any]]) -> dict[str, ModelUsage]:
    return {
        model: ModelUsage(read_model_tokens(used), number(used.get("costUSD")))
        for model, used in model_usage.items()
    }


def _sum(first: Mapping[str, ModelUsage], second: Mapping[str, ModelUsage]) -> dict[str, ModelUsage]:
    models = dict.fromkeys([*first, *second])
    return {m: first[m] + second[m] if m in first and m in second else first.get(m) or second[m] for m in models}


def _contradict(own: Tokens, by_model: Mapping[str, ModelUsage]) -> bool:
    """Compare the main agent's own tokens with those by model, where subagents' and earlier results' are, too.

    They fit badly where an answer broke off: 2.1.330 guesses its output in the one, or leaves it out of the other.
    """
    prompt = output = 0
    for used in by_model.values():
        prompt += used.tokens.prompt
        output += used.tokens.output_tokens
    return own.output_tokens != output if own.prompt == prompt else own.prompt > prompt
