"""Parser of Codex's `exec --json` output: lines in, events out.

One line is one JSON object. Known types become events, unknown ones are signs of life, and a line that is not a
JSON object or lacks a field of its type is `Malformed`. To read a new type: add a method, and its type or
the type of its item to the tables in `__init__`.

The stream names no model and counts tokens over a thread's whole life: `rollout` reads the usage of a turn.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import orjson

from adapters import events as ev
from adapters.codex.faults import broke_off, status_of
from adapters.codex.tokens import UNKNOWN_MODEL, read_tokens
from adapters.protocol import nesting
from adapters.toolkit.json_fields import optional_string, string
from adapters.toolkit.json_lines import HEARTBEATS, MAX_MALFORMED, Events, LineParser, Record, elapsed_ms
from adapters.toolkit.truncate import beginning, shorten, strip_ansi, summary, texts_of
from adapters.usage import ModelUsage

_THREAD = re.compile(r"[A-Za-z0-9_-]{1,128}")  # becomes part of a file name and of an argument
_RETRY = re.compile(r"Reconnecting\.\.\. (?:(\d{1,9})/(\d{1,9})|waiting for network) ?(.*)", re.DOTALL)
_FAILED = ("failed", "declined")
# Part of its warning about the older name of `features.memories`, which takes precedence: Codex may then ask
# models about earlier sessions without recording the usage.
_REMEMBERS = "[features].memory_tool"


class CodexParser(LineParser):
    """Parser of one attempt's output."""

    def __init__(self) -> None:
        super().__init__(
            {
                "thread.started": _thread_started,
                "item.started": self._item_started,
                "item.completed": self._item_completed,
                "turn.completed": self._completed,
                "turn.failed": self._failed,
                "error": _error,
            }
        )
        self._text = ""  # the model's latest text
        self._tools: dict[str, float | None] = {}  # start times of calls in flight
        self._items: dict[object, Callable[[Record], ev.Event]] = {
            "agent_message": self._message,
            "reasoning": lambda item: ev.Thinking(string(item["text"])),
            "error": lambda item: ev.Notification("error", string(item["message"])[:MAX_MALFORMED]),
            "todo_list": _todo_list,
        }

    def _item_started(self, record: Record, at: float | None) -> Events:
        item = record["item"]
        tool = _TOOLS.get(item["type"])
        return (self._start(item, tool, at),) if tool is not None else HEARTBEATS

    def _item_completed(self, record: Record, at: float | None) -> Events:
        item = record["item"]
        kind = item["type"]
        if kind in self._items:
            told = self._items[kind](item)
            return (ev.AnswerLost(), told) if kind == "error" and _REMEMBERS in item["message"] else (told,)
        tool = _TOOLS.get(kind)
        if tool is None:
            return HEARTBEATS
        call = string(item["id"])
        begun = () if call in self._tools else (self._start(item, tool, at),)
        return (*begun, self._finish(item, at))

    def _start(self, item: Record, tell: Callable[[Record], str], at: float | None) -> ev.Event:
        call = string(item["id"])
        started = ev.ToolStarted(call, _tool_name(item), summary(tell(item)))
        self._tools[call] = at
        return started

    def _finish(self, item: Record, at: float | None) -> ev.Event:
        call = string(item["id"])
        error = _tool_error(item)
        name, output = _tool_name(item), "" if error else _output(item)
        return ev.ToolFinished(call, name, elapsed_ms(self._tools.pop(call, None), at), error, output)

    def _message(self, item: Record) -> ev.Event:
        self._text = string(item["text"])
        return ev.AssistantText(self._text)

    def _completed(self, record: Record, _: float | None) -> Events:
        """Read the success; its `usage` covers the thread's whole life, of which this turn may be a part."""
        by_model, unread = _account(record)
        report = ev.Report(
            "completed",
            text=self._text,
            structured_output=_object(self._text),
            by_model=by_model,
            unread=unread,
        )
        return (ev.TurnCompleted(report),)

    def _failed(self, record: Record, _: float | None) -> Events:
        error = record.get("error")
        said = error.get("message") if isinstance(error, dict) else None
        text = optional_string(said) or "the agent reported a failure without a reason"
        failed = ev.TurnFailed(ev.Report("failed", is_error=True, text=text, api_status=status_of(text)))
        return (ev.AnswerLost(), failed) if broke_off(text) else (failed,)


def _account(record: Record) -> tuple[dict[str, ModelUsage], tuple[str, ...]]:
    """Return the thread's usage and its unreadable fields; a success without usage is still a success."""
    try:
        return {UNKNOWN_MODEL: ModelUsage(read_tokens(record["usage"]))}, ()
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}, ("usage",)


# -- one-line summaries of tool calls


def _command(item: Record) -> str:
    return string(item["command"])


def _paths(item: Record) -> str:
    return ", ".join(string(change["path"]) for change in item["changes"])


def _query(item: Record) -> str:
    return string(item["query"])


def _arguments(item: Record) -> str:
    return orjson.dumps(item.get("arguments")).decode()


def _collaboration(item: Record) -> str:
    return string(item["tool"])


_TOOLS: dict[object, Callable[[Record], str]] = {
    "command_execution": _command,
    "file_change": _paths,
    "web_search": _query,
    "mcp_tool_call": _arguments,
    "collab_tool_call": _collaboration,
}


def _tool_name(item: Record) -> str:
    if item["type"] == "mcp_tool_call":
        return f"mcp__{string(item['server'])}__{string(item['tool'])}"
    return string(item["type"])


def _tool_error(item: Record) -> str | None:
    if item.get("status") not in _FAILED:
        return None
    error = item.get("error")
    said = error.get("message") if isinstance(error, dict) else item.get("aggregated_output")
    code = item.get("exit_code")
    head = f"Exit code {code}\n" if isinstance(code, int) and code else ""
    return shorten(strip_ansi(head + (optional_string(said) or ""))) or string(item["status"])


def _output(item: Record) -> str:
    result = item.get("result")
    return beginning(
        texts_of(result.get("content") if isinstance(result, dict) else item.get("aggregated_output"))
    )


# -- everything else


def _thread_started(record: Record, _: float | None) -> Events:
    thread = string(record["thread_id"])
    if not _THREAD.fullmatch(thread):
        raise ValueError("not a thread id")
    return (ev.SessionStarted(thread),)


def _error(record: Record, _: float | None) -> Events:
    """Read a notice, mostly of a reconnect; a fatal error is also in `turn.failed`."""
    message = string(record["message"])
    retry = _RETRY.fullmatch(message)
    if retry is None:
        return (ev.Notification("error", message[:MAX_MALFORMED]),)
    attempt, most, why = retry.groups()
    return (ev.ApiRetry(int(attempt or 0), int(most or 0), 0, status_of(why), why.strip("()")[:MAX_MALFORMED]),)


def _todo_list(item: Record) -> ev.Event:
    done = [entry["completed"] is True for entry in item["items"]]
    return ev.Notification("todo_list", f"{sum(done)} of {len(done)} done")


def _object(text: str) -> dict[str, Any] | None:
    """Return the structured output if the text is a JSON object."""
    try:
        value = nesting.read(text) if text.lstrip().startswith("{") else None
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
