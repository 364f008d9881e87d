"""Claude Code's `stream-json` output, line by line, as events.

One line is one JSON object. Known types become events, unknown ones are signs of life, and what is no JSON
object or lacks what its type always has is `Malformed`. To read a new one: add a method, and its type to
`_readers` or its subtype to `_system_readers`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import orjson

from adapters import events as ev
from adapters.claude_code.report import read_report
from adapters.claude_code.tool_errors import tool_error_text
from adapters.usage import ModelUsage, Tokens

MAX_MALFORMED = 500  # characters
MAX_SUMMARY = 200  # characters
SYNTHETIC = "<synthetic>"  # the "model" of messages that Claude Code makes up itself, such as API errors

_HEARTBEATS: tuple[ev.Event, ...] = (ev.HEARTBEAT,)
_NO_TOKENS = Tokens()
_STREAM_EVENT = b'{"type":"stream_event","event":{"type":"'
_STREAM_USAGE = (b"message_start", b"message_delta")
_INTERRUPTED = "[Request interrupted by user"
_SUMMARY_KEYS = ("command", "file_path", "path", "pattern", "url", "query", "description", "prompt")

Record = dict[str, Any]  # a decoded line; every access below is checked or caught


class ClaudeCodeParser:
    """See `adapters.fold.Parser`."""

    def __init__(self) -> None:
        self._billed: dict[str, Tokens] = {}  # by message id, as far as printed
        self._open_message: tuple[str, str] | None = None  # id and model of the message being streamed
        self._tools: dict[str, tuple[str, float | None]] = {}  # calls in flight: name and start
        self._reported: Mapping[str, ModelUsage] = {}  # by the results so far
        self._request_sent_at: float | None = None
        self._readers: dict[object, Callable[[Record, float | None], tuple[ev.Event, ...]]] = {
            "assistant": self._assistant,
            "user": self._user,
            "result": self._result,
            "system": self._system,
            "stream_event": self._stream_event,
            "rate_limit_event": self._rate_limit,
        }
        self._system_readers: dict[object, Callable[[Record], ev.Event]] = {
            "init": _session_started,
            "api_retry": _api_retry,
            "model_fallback": _model_fallback,
            "task_started": _subagent,
            "task_progress": _subagent,
            "task_updated": _subagent,
            "task_notification": _subagent,
        }

    def feed(self, line: bytes, at: float | None) -> tuple[ev.Event, ...]:
        """Read one line; see `adapters.fold.Parser`."""
        # Text deltas are most lines of a stream with partial messages, and say nothing that we keep.
        if line.startswith(_STREAM_EVENT) and not line.startswith(_STREAM_USAGE, len(_STREAM_EVENT)):
            return _HEARTBEATS
        try:
            record = orjson.loads(line)
            if type(record) is not dict:
                return (_malformed(line),)
            reader = self._readers.get(record.get("type"))
            return reader(record, at) if reader is not None else _HEARTBEATS
        except (ValueError, KeyError, TypeError, AttributeError):
            return (_malformed(line),)

    # -- assistant messages: one line for each content block, all with the usage of `message_start`

    def _assistant(self, record: Record, at: float | None) -> tuple[ev.Event, ...]:
        message = record["message"]
        if message["model"] == SYNTHETIC:
            return (_api_failure(record, message),)
        subagent = record.get("parent_tool_use_id") is not None
        happened: list[ev.Event] = []
        usage = message.get("usage")
        if usage:
            self._bill(message["id"], message["model"], _tokens(usage), happened, at=at)
        for block in message["content"]:
            kind = block["type"]
            if kind == "text":
                happened.append(ev.AssistantText(block["text"], subagent))
            elif kind == "tool_use":
                happened.append(self._tool_use(block, subagent, at))
            elif kind == "thinking":
                happened.append(ev.Thinking(block["thinking"], subagent))
        return tuple(happened) or _HEARTBEATS

    def _tool_use(self, block: Record, subagent: bool, at: float | None) -> ev.Event:
        self._tools[block["id"]] = (block["name"], at)
        return ev.ToolStarted(block["id"], block["name"], _summary(block.get("input")), subagent)

    def _bill(
        self,
        message_id: str,
        model: str,
        tokens: Tokens,
        happened: list[ev.Event],
        *,
        final: bool = False,
        at: float | None = None,
    ) -> None:
        known = self._billed.get(message_id)
        if known is not None and not final:
            return  # another block of a message that is counted already
        self._billed[message_id] = tokens
        duration = None
        if known is None and at is not None and self._request_sent_at is not None:
            duration = round((at - self._request_sent_at) * 1000)
            self._request_sent_at = None
        added = tokens - known if known is not None else tokens
        happened.append(ev.TokenUsage(model, added, final, duration))

    # -- the results of tools

    def _user(self, record: Record, at: float | None) -> tuple[ev.Event, ...]:
        if record.get("parent_tool_use_id") is None:
            self._request_sent_at = at
        content = record["message"]["content"]
        if type(content) is not list:
            return _HEARTBEATS
        happened: list[ev.Event] = []
        for block in content:
            if block["type"] == "tool_result":
                happened.append(self._tool_result(block, at))
            elif block["type"] == "text" and block["text"].startswith(_INTERRUPTED):
                happened.append(ev.Interrupted())
        return tuple(happened) or _HEARTBEATS

    def _tool_result(self, block: Record, at: float | None) -> ev.Event:
        tool, started_at = self._tools.pop(block["tool_use_id"], ("", None))
        live = at is not None and started_at is not None
        return ev.ToolFinished(
            block["tool_use_id"],
            tool,
            round((at - started_at) * 1000) if live else None,  # type: ignore[operator]  # `live` says so
            tool_error_text(block.get("content")) if block.get("is_error") else None,
        )

    # -- everything else

    def _stream_event(self, record: Record, at: float | None) -> tuple[ev.Event, ...]:
        event = record["event"]
        happened: list[ev.Event] = []
        if event["type"] == "message_start":
            message = event["message"]
            self._open_message = (message["id"], message["model"])
            self._bill(*self._open_message, _tokens(message["usage"]), happened, at=at)
        elif event["type"] == "message_delta" and self._open_message is not None:
            message_id, model = self._open_message
            known = self._billed.get(message_id, _NO_TOKENS)
            self._bill(message_id, model, _merge(known, event.get("usage") or {}), happened, final=True)
        return tuple(happened) or _HEARTBEATS

    def _system(self, record: Record, at: float | None) -> tuple[ev.Event, ...]:
        subtype = record.get("subtype")
        reader = self._system_readers.get(subtype)
        if reader is None:
            return (_notification(record),)
        if subtype == "init":
            self._request_sent_at = at
        return (reader(record),)

    def _result(self, record: Record, _: float | None) -> tuple[ev.Event, ...]:
        report = read_report(record, self._reported)
        self._reported = report.by_model
        failed = report.is_error or report.subtype != "success"
        return (ev.TurnFailed(report) if failed else ev.TurnCompleted(report),)

    def _rate_limit(self, record: Record, _: float | None) -> tuple[ev.Event, ...]:
        info = record["rate_limit_info"]
        return (
            ev.RateLimit(
                str(info["status"]),
                info.get("resetsAt"),
                str(info.get("rateLimitType") or ""),
                info.get("utilization"),
            ),
        )


def _tokens(usage: Record) -> Tokens:
    return Tokens(
        usage.get("input_tokens") or 0,
        usage.get("output_tokens") or 0,
        usage.get("cache_read_input_tokens") or 0,
        usage.get("cache_creation_input_tokens") or 0,
    )


def _merge(known: Tokens, usage: Record) -> Tokens:
    """The counts of a `message_delta`: cumulative, and those it leaves out stand as they were."""
    return Tokens(
        usage.get("input_tokens") or known.input_tokens,
        usage.get("output_tokens") or known.output_tokens,
        usage.get("cache_read_input_tokens") or known.cache_read_input_tokens,
        usage.get("cache_creation_input_tokens") or known.cache_creation_input_tokens,
    )


def _summary(arguments: object) -> str:
    if not isinstance(arguments, dict):
        return ""
    for key in _SUMMARY_KEYS:
        value = arguments.get(key)
        if isinstance(value, str):
            return value.partition("\n")[0][:MAX_SUMMARY]
    return ""


def _malformed(line: bytes) -> ev.Event:
    # A character is at most four bytes: no need to decode megabytes for 500 of them.
    return ev.Malformed(line[: MAX_MALFORMED * 4].decode(errors="replace")[:MAX_MALFORMED])


def _session_started(record: Record) -> ev.Event:
    return ev.SessionStarted(
        record["session_id"],
        record.get("model"),
        record.get("claude_code_version"),
        "StructuredOutput" in (record.get("tools") or ()),
    )


def _api_failure(record: Record, message: Record) -> ev.Event:
    text = "".join(block.get("text", "") for block in message["content"])
    category = record.get("error")
    return ev.ApiFailure(category, text) if category else ev.AssistantText(text)


def _api_retry(record: Record) -> ev.Event:
    return ev.ApiRetry(
        record["attempt"],
        record["max_retries"],
        round(record["retry_delay_ms"]),
        record.get("error_status"),
        str(record.get("error") or ""),
    )


def _model_fallback(record: Record) -> ev.Event:
    return ev.ModelFallback(
        str(record.get("original_model") or ""),
        str(record.get("fallback_model") or ""),
        str(record.get("trigger") or ""),
    )


def _subagent(record: Record) -> ev.Event:
    status = record.get("status") or (record.get("patch") or {}).get("status")
    return ev.SubagentProgress(
        str(record["task_id"]),
        str(status or record["subtype"].removeprefix("task_")),
        str(record.get("description") or record.get("summary") or ""),
    )


def _notification(record: Record) -> ev.Event:
    text = record.get("content") or record.get("status") or record.get("hook_name") or ""
    return ev.Notification(str(record.get("subtype") or "system"), str(text)[:MAX_SUMMARY])
