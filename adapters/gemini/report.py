"""The Gemini CLI's `result` line: its own final word on the turn."""

from __future__ import annotations

import re
from typing import Any

from adapters.events import Report
from adapters.gemini.tokens import count, of_stats
from adapters.usage import ModelUsage

_STATUS = re.compile(r'"code"\s*:\s*([1-5]\d\d)\b')  # the API's answer stands in the message, as JSON


def read_report(record: dict[str, Any], stopped: str) -> Report:
    """Read a `result` line. Raises KeyError, TypeError, ValueError or AttributeError if it has another shape.

    `stopped` is why it had given up before; it may call that a success, or say no more of it. Models that were
    asked and did not answer are left out.
    """
    status, stats, error = record["status"], record.get("stats") or {}, record.get("error") or {}
    if type(status) is not str:
        raise TypeError("not a status")
    message = str(error.get("message") or stopped)
    found = _STATUS.search(message)
    by_model = {model: ModelUsage(of_stats(used)) for model, used in (stats.get("models") or {}).items()}
    return Report(
        subtype=status,
        is_error=status != "success" or bool(stopped),
        by_model={model: used for model, used in by_model.items() if used.tokens.total},
        duration_ms=count(stats.get("duration_ms")) or None,
        terminal_reason=str(error["type"]) if "type" in error else None,
        api_status=int(found[1]) if found else None,
        errors=(message,) if message else (),
    )
