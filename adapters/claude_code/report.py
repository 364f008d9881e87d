"""Claude Code's `result` line: its own final word on the turn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from adapters.events import Report
from adapters.usage import ModelUsage, Tokens


def read_report(record: dict[str, Any], before: Mapping[str, ModelUsage]) -> Report:
    """Read a `result` line. Raises TypeError, KeyError or AttributeError if it has another shape.

    `before` is what earlier results of the same process reported. Claude Code 2.1.330 counts `modelUsage` over the
    whole session, earlier processes included, and says what is new beside it; 2.1.197 counts over the process.
    """
    text = record.get("result")
    news = record.get("model_usage_since_last_result")
    return Report(
        subtype=record["subtype"],
        is_error=record.get("is_error") is True,
        text=text if isinstance(text, str) else "",
        structured_output=record.get("structured_output"),
        by_model=_by_model(record.get("modelUsage") or {}) if news is None else _sum(before, _by_model(news)),
        num_turns=record.get("num_turns"),
        duration_ms=record.get("duration_ms"),
        duration_api_ms=record.get("duration_api_ms"),
        stop_reason=record.get("stop_reason"),
        terminal_reason=record.get("terminal_reason"),
        api_status=record.get("api_error_status"),
        errors=tuple(str(error) for error in record.get("errors") or ()),
        denied_tools=tuple(str(denial["tool_name"]) for denial in record.get("permission_denials") or ()),
    )


def _by_model(model_usage: dict[str, dict[str, Any]]) -> dict[str, ModelUsage]:
    return {
        model: ModelUsage(
            Tokens(
                used["inputTokens"],
                used["outputTokens"],
                used["cacheReadInputTokens"],
                used["cacheCreationInputTokens"],
            ),
            used.get("costUSD"),
        )
        for model, used in model_usage.items()
    }


def _sum(first: Mapping[str, ModelUsage], second: Mapping[str, ModelUsage]) -> dict[str, ModelUsage]:
    models = dict.fromkeys([*first, *second])
    return {m: first[m] + second[m] if m in first and m in second else first.get(m) or second[m] for m in models}
