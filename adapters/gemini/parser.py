"""The Gemini CLI's `stream-json` output, line by line, as events.

One line is one JSON object. Known types become events, unknown ones are signs of life, and what is no JSON
object or lacks what its type always has is `Malformed`. An answer comes in pieces; it becomes one event when
something else follows. To read a new type: add a method, and its type to `_readers`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from adapters import events as ev
from adapters.claude_code.tool_errors import shorten, strip_ansi
from adapters.gemini.report import read_report

MAX_MALFORMED = 500  # characters
MAX_SUMMARY = 200  # characters

_HEARTBEATS: tuple[ev.Event, ...] = (ev.HEARTBEAT,)
_SUMMARY_KEYS = ("command", "file_path", "absolute_path", "path", "dir_path", "pattern", "query", "prompt", "url",
                 "agent_name", "title", "description")  # fmt: skip

Record = dict[str, Any]  # a decoded line; every access below is checked or caught
Events = tuple[ev.Event, ...]


class GeminiParser:
    """See `adapters.fold.Parser`."""

    def __init__(self) -> None:
        self._answer: list[str] = []  # pieces of the one under way
        self._stopped = ""  # why it has given up, unless it goes on after all
        self._tools: dict[str, tuple[str, float | None]] = {}  # calls in flight: name and start
        self._readers: dict[object, Callable[[Record, float | None], Events]] = {
            "init": self._init,
            "tool_use": self._tool_use,
            "tool_result": self._tool_result,
            "error": self._error,
            "result": self._result,
        }

    def feed(self, line: bytes, at: float | None) -> Events:
        """Read one line; see `adapters.fold.Parser`."""
        try:
            record = orjson.loads(line)
            kind = record.get("type")
            if kind == "message":
                return self._message(record)
            reader = self._readers.get(kind)
            if reader is None:
                return _HEARTBEATS
            happened = reader(record, at)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return (_malformed(line),) if line.strip() else _HEARTBEATS
        return (*self._answered(), *happened)

    def _message(self, record: Record) -> Events:
        if record["role"] == "assistant":
            self._answer.append(_string(record["content"]))
            self._stopped = ""
        return _HEARTBEATS

    def _answered(self) -> Events:
        """The answer that has come to its end."""
        text = "".join(self._answer)
        self._answer.clear()
        return (ev.AssistantText(text),) if text else ()

    def _init(self, record: Record, _: float | None) -> Events:
        model = record.get("model")
        return (ev.SessionStarted(_string(record["session_id"]), model if isinstance(model, str) else None),)

    def _tool_use(self, record: Record, at: float | None) -> Events:
        call, tool = _string(record["tool_id"]), _string(record["tool_name"])
        self._tools[call] = (tool, at)
        self._stopped = ""
        return (ev.ToolStarted(call, tool, _summary(record.get("parameters"))),)

    def _tool_result(self, record: Record, at: float | None) -> Events:
        call, error = _string(record["tool_id"]), None
        if record["status"] != "success":
            error = shorten(strip_ansi(_tool_error(record)))
        tool, started_at = self._tools.pop(call, ("", None))
        duration = round((at - started_at) * 1000) if at is not None and started_at is not None else None
        return (ev.ToolFinished(call, tool, duration, error),)

    def _error(self, record: Record, _: float | None) -> Events:
        severity, message = _string(record["severity"]), _string(record["message"])
        self._stopped = message
        if severity == "error":
            return (ev.ApiFailure("error", message),)
        return (ev.Notification("warning", message[:MAX_SUMMARY]),)

    def _result(self, record: Record, _: float | None) -> Events:
        report = read_report(record, self._stopped)
        return (ev.TurnFailed(report) if report.is_error else ev.TurnCompleted(report),)


def _string(value: object) -> str:
    if type(value) is not str:
        raise TypeError("not a string")
    return value


def _malformed(line: bytes) -> ev.Event:
    # A character is at most four bytes: no need to decode megabytes for 500 of them.
    return ev.Malformed(line[: MAX_MALFORMED * 4].decode(errors="replace")[:MAX_MALFORMED])


def _summary(parameters: object) -> str:
    if not isinstance(parameters, dict):
        return ""
    for key in _SUMMARY_KEYS:
        value = parameters.get(key)
        if isinstance(value, str):
            return value.partition("\n")[0][:MAX_SUMMARY]
    return ""


def _tool_error(record: Record) -> str:
    error = record.get("error")
    said = error.get("message") if isinstance(error, dict) else None
    return str(said or record.get("output") or record["status"])
