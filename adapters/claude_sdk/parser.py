"""Parser of the control protocol's lines, in addition to those that Claude Code prints in any turn.

Events depend only on the agent's output, so a worker that takes over reports the same events with the same
numbers.
"""

from __future__ import annotations

from adapters import events as ev
from adapters.claude_code.parser import ClaudeCodeParser
from adapters.toolkit.json_fields import string
from adapters.toolkit.json_lines import HEARTBEATS, Events, Record

_MOST_TEXT = 2000  # characters of one text in a tool's parameters or result
_MOST_ITEMS = 50
_DEEPEST = 6


class ClaudeSdkParser(ClaudeCodeParser):
    """Parser of one attempt's output."""

    def __init__(self) -> None:
        super().__init__()
        self._greeted = False
        self._readers |= {"control_request": _control_request, "control_response": self._control_response}

    def _control_response(self, record: Record, _: float | None) -> Events:
        """Read an answer; the first is that to the handshake."""
        response = record["response"]
        if self._greeted:
            # Set model: Claude Code tests the name with a model request that it reports nowhere.
            return (ev.AnswerLost(),) if set(response.get("response") or ()) == {"model"} else HEARTBEATS
        self._greeted = True
        if response.get("subtype") == "error":
            return (ev.AgentStatus("error", str(response.get("error") or "")[:_MOST_TEXT]),)
        return (ev.AgentStatus("ready"),)


def _control_request(record: Record, _: float | None) -> Events:
    request = record["request"]
    if request.get("subtype") != "hook_callback":
        return HEARTBEATS
    happened = request["input"]
    event = happened.get("hook_event_name")
    if event == "PostToolUse":
        return (
            ev.ToolInvoked(
                string(happened["tool_use_id"]),
                string(happened["tool_name"]),
                _cut(happened.get("tool_input")),
                _cut(happened.get("tool_response")),
            ),
        )
    if event == "Stop":
        return (ev.Notification("stop", str(happened.get("stopReason") or "end_turn")),)
    return HEARTBEATS


def _cut(value: object, depth: int = 0) -> object:
    """Return a JSON value with long texts and lists cut, to limit the size of an event."""
    if depth > _DEEPEST:
        return "…"
    if isinstance(value, str):
        return value if len(value) <= _MOST_TEXT else f"{value[:_MOST_TEXT]}…"
    if isinstance(value, list):
        return [_cut(item, depth + 1) for item in value[:_MOST_ITEMS]]
    if isinstance(value, dict):
        return {str(key): _cut(value[key], depth + 1) for key in list(value)[:_MOST_ITEMS]}
    return value
