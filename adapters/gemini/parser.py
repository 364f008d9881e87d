"""Parser of the Gemini CLI's `stream-json` output: lines in, events out.

One line is one JSON object. Known types become events; a line that is not a JSON object or lacks a field of its
type is `Malformed`. A line of an unknown type may be the answer in another version's form and counts as its
beginning: an attempt that may have been answered is not repeated. An answer arrives in pieces and becomes one
event when something else follows. To read a new type: add a method, and its type to the table in `__init__`.
"""

from __future__ import annotations

from adapters import events as ev
from adapters.gemini.report import SUCCESS, read_report
from adapters.toolkit.json_fields import string
from adapters.toolkit.json_lines import HEARTBEATS, Events, LineParser, Record, elapsed_ms
from adapters.toolkit.truncate import MAX_SUMMARY, beginning, shorten, strip_ansi, summary_of_call, texts_of

_SUMMARY_KEYS = ("command", "file_path", "absolute_path", "path", "dir_path", "pattern", "query", "prompt", "url",
                 "agent_name", "title", "description")  # fmt: skip


class GeminiParser(LineParser):
    """Parser of one attempt's output."""

    def __init__(self) -> None:
        super().__init__(
            {
                "init": self._init,
                "tool_use": self._tool_use,
                "tool_result": self._tool_result,
                "error": self._error,
                "result": self._result,
            }
        )
        self._answer: list[str] = []  # pieces of the current answer
        self._answering = False  # the model has written text since the last tool call
        self._stopped = ""  # why it gave up, unless it continues after all
        self._tools: dict[str, tuple[str, float | None]] = {}  # calls in flight: name and start

    def _read(self, record: Record, at: float | None) -> Events:
        kind = record.get("type")
        if kind == "message":
            return self._message(record)
        if kind not in self._readers:
            return self._begun()
        happened = super()._read(record, at)
        return (*self._answered(), *happened)

    def _message(self, record: Record) -> Events:
        if record["role"] == "user":
            return HEARTBEATS
        if record["role"] == "assistant":
            self._answer.append(string(record["content"]))
            self._stopped = ""
        return self._begun()

    def _begun(self) -> Events:
        """Report once that an answer has begun, or may have."""
        if self._answering:
            return HEARTBEATS
        self._answering = True
        return (ev.AnswerBegun(),)

    def _answered(self) -> Events:
        """Return the finished answer, if any."""
        text = "".join(self._answer)
        self._answer.clear()
        return (ev.AssistantText(text),) if text else ()

    def _init(self, record: Record, _: float | None) -> Events:
        model = record.get("model")
        return (ev.SessionStarted(string(record["session_id"]), model if isinstance(model, str) else None),)

    def _tool_use(self, record: Record, at: float | None) -> Events:
        call, tool = string(record["tool_id"]), string(record["tool_name"])
        self._tools[call] = (tool, at)
        self._stopped = ""
        self._answering = False
        return (ev.ToolStarted(call, tool, summary_of_call(record.get("parameters"), _SUMMARY_KEYS)),)

    def _tool_result(self, record: Record, at: float | None) -> Events:
        call, error = string(record["tool_id"]), None
        if record["status"] != "success":
            error = shorten(strip_ansi(_tool_error(record)))
        tool, started_at = self._tools.pop(call, ("", None))
        output = "" if error else beginning(texts_of(record.get("output")))
        return (ev.ToolFinished(call, tool, elapsed_ms(started_at, at), error, output),)

    def _error(self, record: Record, _: float | None) -> Events:
        severity, message = string(record["severity"]), string(record["message"])
        self._stopped = message
        if severity == "error":
            return (ev.ApiFailure("error", message),)
        return (ev.Notification("warning", message[:MAX_SUMMARY]),)

    def _result(self, record: Record, _: float | None) -> Events:
        report = read_report(record, self._stopped)
        return (
            ev.TurnCompleted(report)
            if report.subtype == SUCCESS and not report.is_error
            else ev.TurnFailed(report),
        )


def _tool_error(record: Record) -> str:
    error = record.get("error")
    said = error.get("message") if isinstance(error, dict) else None
    return str(said or record.get("output") or record["status"])
