"""Renders a turn's events as Markdown for chat threads and logs.

Events arrive as dictionaries with their names, as on the wire. To render another event, add a function and its
name to `_TEXTS`. `Transcript` handles what depends on earlier events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from adapters.errors import meaning
from adapters.usage import sum_costs

MAX_THINKING = 500  # characters
MAX_RESULT = 300  # characters of a tool's output

Event = Mapping[str, Any]


def transcript_text(event: Event) -> str | None:
    """Return the Markdown of an event; None if it has none."""
    reader = _TEXTS.get(event["event"])
    return reader(event) or None if reader is not None else None


class Transcript:
    """Markdown of a turn's events in order, without repetition and always with its outcome.

    An agent's last text is also its result, and an agent does not report an end that others caused.
    """

    def __init__(self) -> None:
        self._said = ""  # the agent's last text
        self._reported = False  # the agent has reported its end in this attempt
        self._why = ""  # why the last attempt failed

    def text(self, event: Event) -> str | None:
        """Return the Markdown of the next event; None if it has none."""
        match event["event"]:
            case "text" if not event["subagent"]:
                self._said = event["text"].strip()
            case "turn_completed" | "turn_failed":
                self._reported = True
                if self._said and event["report"]["text"].strip() == self._said:
                    return transcript_text({**event, "report": {**event["report"], "text": ""}})
            case "attempt_started":
                self._reported = False
            case "attempt_ended":
                self._why = event["message"] or ""
            case "turn_settled" if event["error_kind"] and not self._reported:
                why = self._why or meaning(event["error_kind"])
                return f"**{event['status'].capitalize()}:** {event['error_kind']}" + (f": {why}" if why else "")
        return transcript_text(event)


def _text(event: Event) -> str:
    return str(event["text"])


def _thinking(event: Event) -> str:
    lines = event["text"][:MAX_THINKING].splitlines()
    said = "\n".join(f"_{line.strip()}_" if line.strip() else "" for line in lines)
    return f"*thinking:* {said}" if said.strip() else ""


def _tool_started(event: Event) -> str:
    argument = f":{event['summary']}" if event["summary"] else ""
    return f"**[{event['tool']}{argument}]**"


def _tool_finished(event: Event) -> str:
    if event["error"] is not None:
        return f"**Error:**\n{_fenced(event['error'][:MAX_RESULT])}"
    return _fenced(event["output"][:MAX_RESULT]) if event["output"].strip() else ""


def _events_dropped(event: Event) -> str:
    return f"*The agent printed too much: {event['count']:,} events are missing here.*"


def _check_finished(event: Event) -> str:
    how = "passed" if event["exit"] == 0 else "timed out" if event["exit"] is None else f"exit {event['exit']}"
    printed = f"\n{_fenced(event['tail'][-MAX_RESULT:])}" if event["exit"] != 0 and event["tail"].strip() else ""
    return f"**[Test:{event['command']}]** {how}{printed}"


def _result(event: Event) -> str:
    report = event["report"]
    failed = f"**Error:** {report['subtype']}" if event["event"] == "turn_failed" else ""
    return "\n\n".join(filter(None, (failed, report["text"], _used(report["by_model"]))))


def _used(by_model: Mapping[str, Any]) -> str:
    cost = sum_costs(used["cost_usd"] for used in by_model.values()) if by_model else None
    tokens = sum(count for used in by_model.values() for count in used["tokens"].values())
    return f"{'unpriced' if cost is None else f'${cost:.4f}'} · {tokens:,} tokens" if by_model else ""


def _fenced(text: str) -> str:
    """Return the text as a code block with a fence that does not occur in it."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{text.rstrip()}\n{fence}"


_TEXTS: Mapping[str, Callable[[Event], str]] = {
    "text": _text,
    "thinking": _thinking,
    "tool_started": _tool_started,
    "tool_finished": _tool_finished,
    "events_dropped": _events_dropped,
    "check_finished": _check_finished,
    "turn_completed": _result,
    "turn_failed": _result,
}
