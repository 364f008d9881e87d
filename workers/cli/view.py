"""The live view of one turn: what it does, for how long, and what it has cost so far."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

_TOKEN_KINDS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


class TurnView:
    """Feed it events in order; it is drawn as two lines."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._started_at = clock()
        self._tools: dict[str, str] = {}
        self._tokens = 0
        self._doing = "queued"
        self._spinner = Spinner("dots")

    def lines(self, event: dict[str, Any]) -> Iterator[Text]:
        """Take an event in; yields what should stay on the screen."""
        handler = getattr(self, f"_on_{event['event']}", None)
        if handler is not None:
            yield from handler(event)

    def __rich__(self) -> RenderableType:
        elapsed = self._clock() - self._started_at
        status = Text(f" {elapsed:6.1f} s · {self._tokens:,} tokens · ", style="dim").append(
            self._doing, style="cyan"
        )
        self._spinner.update(text=status)
        return Group(self._spinner)

    def _on_attempt_started(self, event: dict[str, Any]) -> Iterator[Text]:
        self._doing = "starting"
        yield Text(f"▸ {event['agent']} on {event['host']}, attempt {event['attempt']}", style="dim")

    def _on_session_started(self, event: dict[str, Any]) -> Iterator[Text]:
        self._doing = "thinking"
        yield Text(f"  session {event['session_id']} · {event['model'] or 'default model'}", style="dim")

    def _on_text(self, event: dict[str, Any]) -> Iterator[Text]:
        yield Text(event["text"], style="dim" if event["subagent"] else "")

    def _on_tool_started(self, event: dict[str, Any]) -> Iterator[Text]:
        self._tools[event["tool_use_id"]] = event["tool"]
        self._doing = f"{event['tool']} {event['summary']}".strip()[:80]
        yield Text(f"  → {event['tool']} ", style="cyan").append(event["summary"], style="dim")

    def _on_tool_finished(self, event: dict[str, Any]) -> Iterator[Text]:
        self._tools.pop(event["tool_use_id"], None)
        self._doing = next(iter(self._tools.values()), "thinking")
        took = f" {event['duration_ms'] / 1000:.1f} s" if event["duration_ms"] is not None else ""
        if event["error"] is not None:
            first = event["error"].partition("\n")[0]
            yield Text(f"  ✗ {event['tool']}{took}: {first}", style="red")

    def _on_token_usage(self, event: dict[str, Any]) -> Iterator[Text]:
        self._tokens += sum(event["added"][kind] for kind in _TOKEN_KINDS)
        self._doing = "thinking" if not self._tools else self._doing
        yield from ()

    def _on_api_retry(self, event: dict[str, Any]) -> Iterator[Text]:
        why = event["status"] or event["error"] or "no answer"
        text = (
            f"  … API retry {event['attempt']}/{event['max_retries']} in {event['delay_ms'] / 1000:.1f} s ({why})"
        )
        yield Text(text, style="yellow")

    def _on_model_fallback(self, event: dict[str, Any]) -> Iterator[Text]:
        yield Text(f"  … {event['original']} → {event['fallback']} ({event['trigger']})", style="yellow")

    def _on_subagent(self, event: dict[str, Any]) -> Iterator[Text]:
        if event["status"] != "progress":
            yield Text(f"  subagent {event['status']} {event['description']}".rstrip(), style="dim")

    def _on_rate_limit(self, event: dict[str, Any]) -> Iterator[Text]:
        yield Text(f"  … account limit {event['limit']}: {event['status']}", style="yellow")

    def _on_malformed(self, event: dict[str, Any]) -> Iterator[Text]:
        yield Text(f"  ? unreadable line: {event['text'][:80]}", style="yellow")

    def _on_attempt_ended(self, event: dict[str, Any]) -> Iterator[Text]:
        if event["retry_at"] is not None:
            wait = max(0.0, event["retry_at"] - self._clock())
            self._doing = "waiting to try again"
            yield Text(f"  ↻ {event['error_kind']}: {event['message']} — again in {wait:.1f} s", style="yellow")


def show_live(events: Iterable[dict[str, Any]], console: Console | None = None) -> None:
    """Draw a turn's events until they end. Without a terminal, one line each."""
    console = console or Console(stderr=True, highlight=False)
    view = TurnView()
    with Live(view, console=console, refresh_per_second=8, transient=True):
        for event in events:
            for line in view.lines(event):
                console.print(line)
