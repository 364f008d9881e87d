"""Claude Code's `result` line: its own final word on the turn."""

from __future__ import annotations

from typing import Any

from adapters.events import Report
from adapters.usage import ModelUsage, Tokens


def read_report(record: dict[str, Any]) -> Report:
    """Read a `result` line. Raises TypeError, KeyError or AttributeError if it has another shape."""
    text = record.get("result")
    return Report(
        subtype=record["subtype"],
        is_error=record.get("is_error") is True,
        text=text if isinstance(text, str) else "",
        structured_output=record.get("structured_output"),
        by_model=_by_model(record.get("modelUsage") or {}),
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
