"""The Gemini CLI's `result` line: its final report on the turn.

A missing or malformed field leaves the report incomplete, but never invalid.
"""

from __future__ import annotations

import re
from typing import Any

from adapters.events import Report
from adapters.gemini.tokens import of_stats
from adapters.toolkit.json_fields import integer, optional_string
from adapters.usage import ModelUsage

SUCCESS, ERROR = "success", "error"  # known statuses
_STATUS = re.compile(r'"code"\s*:\s*([1-5]\d\d)\b')  # the message contains the API's answer as JSON


def read_report(record: dict[str, Any], stopped: str) -> Report:
    """Return the report of a `result` line; never raises.

    `stopped` is why it gave up before the result, which may call that a success or not mention it. Models that did
    not answer are left out.
    """
    unread: list[str] = []
    stats, error = _object(record, "stats"), _object(record, "error")
    status = optional_string(record.get("status"))
    if not status:
        unread.append("status")
    message = str(error.get("message") or stopped)
    found = _STATUS.search(message)
    by_model = _by_model(stats, unread)
    return Report(
        subtype=status or "",
        is_error=status == ERROR or bool(message),
        by_model={model: used for model, used in by_model.items() if used.tokens.total},
        unread=tuple(unread),
        duration_ms=integer(stats.get("duration_ms")) or None,
        terminal_reason=str(error["type"]) if "type" in error else None,
        api_status=int(found[1]) if found else None,
        errors=(message,) if message else (),
    )


def _object(record: dict[str, Any], name: str) -> dict[str, Any]:
    value = record.get(name)
    return value if isinstance(value, dict) else {}


def _by_model(stats: dict[str, Any], unread: list[str]) -> dict[str, ModelUsage]:
    """Return the readable part of the usage by model; append unreadable fields to `unread`."""
    models = stats.get("models")
    if not isinstance(models, dict):
        unread.append("stats.models")
        return {}
    by_model: dict[str, ModelUsage] = {}
    for model, used in models.items():
        try:
            by_model[model] = ModelUsage(of_stats(used))
        except (KeyError, TypeError, ValueError, AttributeError):
            unread.append(f"stats.models of {model}")
    return by_model
