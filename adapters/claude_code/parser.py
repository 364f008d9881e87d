"""Parser of Claude Code's `stream-json` output: lines in, events out.

One line is one JSON object. Known types become events, unknown ones are signs of life, and a line that is not a
JSON object or lacks a field of its type is `Malformed`. To read a new type: add a method, and its type or
its subtype to the tables in `__init__`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from adapters import events as ev
from adapters.claude_code.known import Version, read_version, tells_lost_answers
from adapters.claude_code.report import read_report
from adapters.claude_code.streamed import StreamedMessage
from adapters.toolkit.json_fields import count, integer, number, optional_string, string
from adapters.toolkit.json_lines import HEARTBEATS, Events, LineParser, Record, elapsed_ms
from adapters.toolkit.truncate import MAX_SUMMARY, beginning, shorten, strip_ansi, summary_of_call, texts_of
from adapters.usage import ModelUsage

SYNTHETIC = "<synthetic>"  # the "model" of messages that Claude Code creates itself, such as API errors

_STREAM_EVENT = b'{"type":"stream_event","event":{"type":"'
_TYPE_AT = len(_STREAM_EVENT)
_STREAM_USAGE = (b"message_start", b"message_delta")
_INTERRUPTED = "[Request interrupted by user"
_INTERRUPTED_TOOL = f"{_INTERRUPTED} for tool use"
_ENVELOPE = re.compile(r"\A\s*<tool_use_error>(.*)</tool_use_error>\s*\Z", re.DOTALL)
_SUMMARY_KEYS = ("command", "file_path", "path", "pattern", "url", "query", "description", "prompt")


class ClaudeCodeParser(LineParser):
    """Parser of one attempt's output."""

    def __init__(self) -> None:
        super().__init__(
            {
                "assistant": self._assistant,
                "user": self._user,
                "result": self._result,
                "system": self._system,
                "stream_event": self._stream_event,
                "rate_limit_event": self._rate_limit,
            }
        )
        self._version: Version | None = None  # None: not reported
        self._counted: set[str] = set()  # ids of the messages whose tokens were reported
        self._open: dict[str | None, StreamedMessage] = {}  # messages being streamed, by the Agent call they serve
        self._tools: dict[str, tuple[str, float | None]] = {}  # calls in flight: name and start
        self._shells: set[str] = set()  # background tasks other than subagents
        self._reported: Mapping[str, ModelUsage] = {}  # usage in the results so far
        self._results: set[str] = set()  # their ids: each has the usage since the last, so count it only once
        self._asked_at: dict[str | None, float] = {}  # requests to the model, by the Agent call they serve
        self._system_readers: dict[object, Callable[[Record], ev.Event]] = {
            "init": _session_started,
            "api_retry": _api_retry,
            "model_fallback": _model_fallback,
            "informational": _informational,
            "task_started": self._task,
            "task_progress": self._task,
            "task_updated": self._task,
            "task_notification": self._task,
        }

    def feed(self, line: bytes, at: float | None) -> Events:
        """Return the events of one line; never raises."""
        # Most lines of a stream with partial messages are text deltas, which we do not need.
        if line.startswith(_STREAM_EVENT) and line.endswith(b"}") and not line.startswith(_STREAM_USAGE, _TYPE_AT):
            return HEARTBEATS
        return super().feed(line, at)

    # -- assistant messages: one line for each content block, all with the usage of `message_start`

    def _assistant(self, record: Record, at: float | None) -> Events:
        message = record["message"]
        call = record.get("parent_tool_use_id")
        subagent = call is not None
        if message["model"] == SYNTHETIC:
            return (_made_up(record, message, subagent),)
        happened: list[ev.Event] = []
        for block in message["content"]:
            kind = block["type"]
            if kind == "text":
                happened.append(ev.AssistantText(string(block["text"]), subagent))
            elif kind == "tool_use":
                happened.append(self._tool_use(block, subagent, at))
            elif kind == "thinking":
                happened.append(ev.Thinking(string(block["thinking"]), subagent))
        if message["id"] not in self._counted:
            self._count(message, call, at, happened)
        return tuple(happened) or HEARTBEATS

    def _tool_use(self, block: Record, subagent: bool, at: float | None) -> ev.Event:
        call, tool = string(block["id"]), string(block["name"])
        self._tools[call] = (tool, at)
        return ev.ToolStarted(call, tool, summary_of_call(block.get("input"), _SUMMARY_KEYS), subagent)

    def _count(self, message: Record, call: str | None, at: float | None, happened: list[ev.Event]) -> None:
        """Append the token usage of an API message when it is first seen."""
        if not message.get("usage"):
            return
        begun = StreamedMessage.begun(message)
        self._counted.add(begun.id)
        # An immediate stop reason: the message was not streamed, because its stream broke off.
        if begun.final and tells_lost_answers(self._version):
            happened.append(ev.AnswerLost())
        asked_at = self._asked_at.pop(call, None) if at is not None else None
        happened.append(begun.usage(api_duration_ms=elapsed_ms(asked_at, at)))

    # -- the results of tools

    def _user(self, record: Record, at: float | None) -> Events:
        if at is not None:
            self._asked_at[record.get("parent_tool_use_id")] = at
        content = record["message"]["content"]
        if type(content) is not list:
            return HEARTBEATS
        happened: list[ev.Event] = []
        for block in content:
            if block["type"] == "tool_result":
                happened.append(self._tool_result(block, at))
            elif block["type"] == "text" and block["text"].startswith(_INTERRUPTED):
                amid_tool = block["text"].startswith(_INTERRUPTED_TOOL) and not record.get("parent_tool_use_id")
                happened.append(ev.Interrupted(amid_tool))
        return tuple(happened) or HEARTBEATS

    def _tool_result(self, block: Record, at: float | None) -> ev.Event:
        call = string(block["tool_use_id"])
        tool, started_at = self._tools.pop(call, ("", None))
        duration = elapsed_ms(started_at, at)
        if block.get("is_error"):
            return ev.ToolFinished(call, tool, duration, tool_error_text(block.get("content")))
        return ev.ToolFinished(call, tool, duration, None, beginning(texts_of(block.get("content"))))

    # -- everything else

    def _stream_event(self, record: Record, at: float | None) -> Events:
        event, call = record["event"], record.get("parent_tool_use_id")
        happened: list[ev.Event] = []
        if event["type"] == "message_start":
            message = event["message"]
            self._open[call] = StreamedMessage.begun(message)
            if message["id"] not in self._counted:
                self._count(message, call, at, happened)
        elif event["type"] == "message_delta" and call in self._open:
            before = self._open[call]
            self._open[call] = after = before.continued(event)
            happened.append(after.usage(before))
        return tuple(happened) or HEARTBEATS

    def _system(self, record: Record, at: float | None) -> Events:
        subtype = record.get("subtype")
        reader = self._system_readers.get(subtype)
        if subtype == "thinking_tokens":  # many for each answer (2.1.330)
            return HEARTBEATS
        if reader is None:
            return (_notification(record),)
        if subtype != "init":
            return (reader(record),)
        self._version = read_version(record.get("claude_code_version")) or self._version
        if at is not None:
            self._asked_at[None] = at
        return (reader(record), *_lost_servers(record))

    def _task(self, record: Record) -> ev.Event:
        task = string(record["task_id"])
        if record.get("task_type") == "local_bash":
            self._shells.add(task)
        return _notification(record) if task in self._shells else _subagent(record, task)

    def _result(self, record: Record, _: float | None) -> Events:
        number = optional_string(record.get("uuid"))
        if number in self._results:
            return HEARTBEATS
        report = read_report(record, self._reported, self._version)
        self._reported = report.by_model
        if number is not None:
            self._results.add(number)
        failed = report.is_error or report.subtype != "success"
        return (ev.TurnFailed(report) if failed else ev.TurnCompleted(report),)

    def _rate_limit(self, record: Record, _: float | None) -> Events:
        info = record["rate_limit_info"]
        return (
            ev.RateLimit(
                str(info["status"]),
                number(info.get("resetsAt")),
                str(info.get("rateLimitType") or ""),
                number(info.get("utilization")),
            ),
        )


def tool_error_text(content: object) -> str:
    """Return the text of a failed call: unwrapped, without colours, at most 2048 bytes."""
    return shorten(strip_ansi(strip_envelope(texts_of(content))))


def strip_envelope(text: str) -> str:
    """Return the text without an enclosing <tool_use_error> element."""
    match = _ENVELOPE.match(text)
    return match[1] if match else text


def _session_started(record: Record) -> ev.Event:
    return ev.SessionStarted(
        string(record["session_id"]),
        optional_string(record.get("model")),
        optional_string(record.get("claude_code_version")),
        "StructuredOutput" in (record.get("tools") or ()),
    )


def _lost_servers(record: Record) -> Iterator[ev.Event]:
    """Yield notifications of failed MCP servers: the agent continues without them and reports no more of them."""
    servers = record.get("mcp_servers")
    for server in servers if isinstance(servers, list) else ():
        if isinstance(server, dict) and server.get("status") == "failed":
            yield ev.Notification(ev.MCP_SERVER, f"{server.get('name')} failed"[:MAX_SUMMARY])


def _made_up(record: Record, message: Record, subagent: bool) -> ev.Event:
    text = "".join(string(block.get("text", "")) for block in message["content"])
    category = record.get("error")
    # A subagent's failure is handled by its caller.
    return ev.AssistantText(text, subagent) if subagent or not category else ev.ApiFailure(str(category), text)


def _api_retry(record: Record) -> ev.Event:
    return ev.ApiRetry(
        count(record["attempt"]),
        count(record["max_retries"]),
        count(record["retry_delay_ms"]),
        integer(record.get("error_status")),
        str(record.get("error") or ""),
    )


def _model_fallback(record: Record) -> ev.Event:
    return ev.ModelFallback(
        str(record.get("original_model") or ""),
        str(record.get("fallback_model") or ""),
        str(record.get("trigger") or ""),
    )


def _informational(record: Record) -> ev.Event:
    """Return Interrupted for a prompt blocked by a hook: the agent reports success without answering."""
    outcome = record.get("prompt_submit_outcome") or {}
    return ev.Interrupted() if outcome.get("kind") == "blocked_by_hook" else _notification(record)


def _subagent(record: Record, task: str) -> ev.Event:
    status = record.get("status") or (record.get("patch") or {}).get("status")
    return ev.SubagentProgress(
        task,
        str(status or record["subtype"].removeprefix("task_")),
        str(record.get("description") or record.get("summary") or ""),
    )


def _notification(record: Record) -> ev.Event:
    text = (
        record.get("content") or record.get("status") or record.get("hook_name") or record.get("description") or ""
    )
    return ev.Notification(str(record.get("subtype") or "system"), str(text or "")[:MAX_SUMMARY])
