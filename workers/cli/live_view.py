"""The live view of one turn: activity, elapsed time, and cost so far.

Reads events in their wire format. To show another event, add a method named `_on_` plus the event's name.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import orjson
from rich.console import Console, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from adapters.events import MCP_SERVER
from adapters.usage import Tokens
from ops.errors import OpsError
from workers.cli.output import STYLES, money, number, printable
from workers.cli.wait_reason import with_notice
from workers.events.limit import EVENT_LIMIT
from workers.events.model import AttemptEnded, TurnSettled

Price = Callable[[str, str, Tokens], float | None]  # US dollars for an agent, a model and tokens; None: unknown

_TOKEN_KINDS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
_QUESTION = 400  # characters of a tool's input shown with a permission request
_WIDTH = 80  # characters of a tool call in the status line


class TurnView:
    """View of one turn, fed its events in order and drawn as one line."""

    def __init__(self, price: Price, clock: Callable[[], float], turn_id: str = "ID") -> None:
        self._price = price
        self._turn_id = turn_id
        self._clock = clock
        self._started_at: float | None = None
        self._agent = ""
        self._tools: dict[str, str] = {}  # running ones, by id
        self._tokens = Tokens()
        self._cost: float | None = 0.0
        self._exact = False
        self._doing = "queued"
        self._held: list[Text] = []
        self._spinner = Spinner("dots")

    def take(self, event: dict[str, Any]) -> list[Text]:
        """Process an event and return the lines that stay on the screen.

        Hold the agent's text back until something follows: the last text is the result, and printed as such.
        """
        if self._started_at is None:
            self._started_at = event["at"]
        handler = getattr(self, f"_on_{event['event']}", None)
        lines = list(handler(event)) if handler is not None else []
        if lines:
            lines, self._held = self._held + lines, []
        if event["event"] == "text" and not event["subagent"]:
            lines, self._held = lines[:-1], lines[-1:]
        return lines

    def rest(self) -> list[Text]:
        """Return the lines still held back."""
        held, self._held = self._held, []
        return held

    @property
    def doing(self) -> str:
        """Current activity of the agent."""
        return self._doing

    @property
    def used(self) -> tuple[int, float | None, bool]:
        """Tokens, cost, and True if they are final: while the agent runs, its output tokens are unknown."""
        return self._tokens.total, self._cost, self._exact

    @property
    def status(self) -> str:
        """Elapsed time, tokens, cost, and current activity."""
        elapsed = 0.0 if self._started_at is None else max(0.0, self._clock() - self._started_at)
        parts = [f"{elapsed:.1f} s"]
        if count := self._tokens.total:
            at_least = "" if self._exact else "≥ "  # output tokens are unknown while it runs
            known = at_least if self._cost is not None else ""
            parts += [f"{at_least}{number(count)} tokens", known + money(self._cost)]
        return " · ".join([*parts, self._doing])

    def __rich__(self) -> RenderableType:
        self._spinner.update(text=Text(self.status, style="cyan", no_wrap=True, overflow="ellipsis"))
        return self._spinner

    def _on_agent_chosen(self, event: dict[str, Any]) -> Iterator[Text]:
        yield Text(printable(f"agent {event['agent']}: {event['reason']}"), "dim")

    def _on_attempt_started(self, event: dict[str, Any]) -> Iterator[Text]:
        self._doing = "starting"
        self._agent = event["agent"]
        agent = " ".join(filter(None, (event["agent"], event["agent_version"])))
        yield Text(printable(f"▸ {agent} on {event['host']}, attempt {event['attempt']}"), style="dim")

    def _on_session_started(self, event: dict[str, Any]) -> Iterator[Text]:
        self._doing = "thinking"
        yield Text(f"  {event['model'] or 'default model'} · session {event['session_id']}", style="dim")

    def _on_text(self, event: dict[str, Any]) -> Iterator[Text]:
        self._doing = "writing"
        yield Text(printable(event["text"]), style="dim" if event["subagent"] else "")

    def _on_tool_started(self, event: dict[str, Any]) -> Iterator[Text]:
        summary = printable(event["summary"])
        self._doing = f"{event['tool']} {summary}".strip()[:_WIDTH]
        self._tools[event["tool_use_id"]] = self._doing
        indent = "    " if event["subagent"] else "  "
        yield Text(f"{indent}→ {event['tool']} ", style="cyan").append(summary, style="dim")

    def _on_tool_finished(self, event: dict[str, Any]) -> Iterator[Text]:
        self._tools.pop(event["tool_use_id"], None)
        self._doing = next(iter(self._tools.values()), "thinking")
        if event["error"] is not None:
            took = f" {event['duration_ms'] / 1000:.1f} s" if event["duration_ms"] is not None else ""
            first = printable(event["error"].partition("\n")[0])
            yield Text(f"  ✗ {event['tool']}{took}: {first}", style="red")

    def _on_token_usage(self, event: dict[str, Any]) -> Iterator[Text]:
        added = Tokens(*(event["added"][kind] for kind in _TOKEN_KINDS))
        self._tokens += added
        cost = self._price(self._agent, event["model"], added)
        self._cost = None if cost is None or self._cost is None else self._cost + cost
        yield from ()

    def _on_turn_completed(self, event: dict[str, Any]) -> Iterator[Text]:
        models = event["report"]["by_model"].values()
        if models:
            kinds = ([model["tokens"][kind] for kind in _TOKEN_KINDS] for model in models)
            self._tokens = sum((Tokens(*counts) for counts in kinds), Tokens())
            costs = [model["cost_usd"] for model in models]
            self._cost = None if None in costs else sum(costs)
            self._exact = True
        self._doing = "finishing"
        yield from ()

    _on_turn_failed = _on_turn_completed

    def _on_api_retry(self, event: dict[str, Any]) -> Iterator[Text]:
        why = event["status"] or event["error"] or "no answer"
        wait = f"retry in {event['delay_ms'] / 1000:.1f} s"
        self._doing = "waiting for the API"
        text = f"  … API: {why}; {wait} ({event['attempt']} of {event['max_retries']})"
        yield Text(text, style="yellow")

    def _on_model_fallback(self, event: dict[str, Any]) -> Iterator[Text]:
        yield Text(f"  … {event['original']} → {event['fallback']} ({event['trigger']})", style="yellow")

    def _on_notification(self, event: dict[str, Any]) -> Iterator[Text]:
        if event["topic"] == MCP_SERVER:
            yield Text(f"  … MCP server {printable(event['text'])}: its tools are unavailable", style="yellow")
        elif event["topic"] == EVENT_LIMIT:
            yield Text(f"  … {printable(event['text'])}", style="yellow")

    def _on_rate_limit(self, event: dict[str, Any]) -> Iterator[Text]:
        yield Text(f"  … account limit {event['limit']}: {event['status']}", style="yellow")

    def _on_malformed(self, event: dict[str, Any]) -> Iterator[Text]:
        yield Text(f"  ? unreadable line: {printable(event['text'][:_WIDTH])}", style="yellow")

    def _on_events_dropped(self, event: dict[str, Any]) -> Iterator[Text]:
        parts = ", ".join(f"{count:,} {name}" for name, count in event["by_event"].items())
        yield Text(f"  … the agent printed too much; events dropped: {parts}", style="yellow")

    def _on_adapter_fault(self, event: dict[str, Any]) -> Iterator[Text]:
        yield Text(f"  ✗ {printable(event['message'])}", style="red")

    def _on_check_finished(self, event: dict[str, Any]) -> Iterator[Text]:
        took, command = f"{event['duration_ms'] / 1000:.1f} s", printable(event["command"])
        if event["exit"] == 0:
            yield Text(f"  ✓ {command} {took}", style="green")
        else:
            how = "timed out" if event["exit"] is None else f"exit {event['exit']}"
            yield Text(f"  ✗ {command} {took}: {how}", style="red")

    def _on_attempt_ended(self, event: dict[str, Any]) -> Iterator[Text]:
        if event["retry_at"] is not None:
            self._doing = "waiting to retry"
            self._tools.clear()
            wait = max(0.0, event["retry_at"] - self._clock())
            why = f"{event['error_kind']}: {printable(event['message'])}"
            yield Text(f"  ↻ {why} — retry in {wait:.1f} s", style="yellow")

    def _on_control_requested(self, event: dict[str, Any]) -> Iterator[Text]:
        value = f" {printable(event['value'])}" if event["value"] else ""
        yield Text(f"  ‹ {event['control']}{value}, requested by {printable(event['by'])}", style="magenta")

    def _on_control_answered(self, event: dict[str, Any]) -> Iterator[Text]:
        if not event["ok"]:
            why = f"{event['error_kind']}: {printable(event['message'])}"
            yield Text(f"  ✗ {event['control']}: {why}", style="red")

    def _on_permission_requested(self, event: dict[str, Any]) -> Iterator[Text]:
        self._doing = f"asking to use {event['tool']}"
        left = max(0.0, event["expires_at"] - self._clock())
        question = f"  ? asks to use {event['tool']}: {_input(event['input'])}"
        yield Text(printable(question), style="yellow")
        how = f"    runturn answer {self._turn_id} {event['request_id']} allow|deny (within {left:.0f} s)"
        yield Text(printable(how), style="yellow")

    def _on_permission_answered(self, event: dict[str, Any]) -> Iterator[Text]:
        self._doing = next(iter(self._tools.values()), "thinking")
        said = {True: f"allowed by {event['by']}", False: f"denied by {event['by']}", None: "not answered"}
        reason = f": {event['reason']}" if event["reason"] else ""
        yield Text(printable(f"  ! {said[event['allowed']]}{reason}"), style="yellow")

    def _on_turn_settled(self, event: dict[str, Any]) -> Iterator[Text]:
        self._doing = event["status"]
        yield from ()

    def _on_stderr(self, event: dict[str, Any]) -> Iterator[Text]:
        yield Text(f"stderr of attempt {event['attempt']}:", style="dim")
        yield Text(printable(event["text"].rstrip("\n")), style="dim")


def show_live(
    events: Iterable[dict[str, Any]],
    price: Price,
    clock: Callable[[], float],
    *,
    turn_id: str = "ID",
    console: Console | None = None,
    waits_for: Callable[[], str | None] | None = None,
) -> None:
    """Show a turn's events until they end. The caller prints the result.

    Without a terminal, print the lines one after another. `clock` is the ledger's. `turn_id` appears in suggested
    commands. Call `waits_for` on another thread if the turn does not start soon.
    """
    console = console or Console(stderr=True, highlight=False)
    view = TurnView(price, clock, turn_id)

    def explain() -> None:
        with contextlib.suppress(OpsError):
            if reason := waits_for and waits_for():
                console.print(Text(f"  … {printable(reason)}", style="yellow"), soft_wrap=not console.is_terminal)

    with Live(view, console=console, refresh_per_second=8, transient=True):
        for event in with_notice(events, explain):
            for line in view.take(event):
                console.print(line, soft_wrap=not console.is_terminal)


def show_past(events: Iterable[dict[str, Any]], price: Price, console: Console) -> None:
    """Print what a finished turn did, and how it ended."""
    at, why, ended = 0.0, "", Text()
    view = TurnView(price, lambda: at)
    for event in events:
        at = event["at"]
        lines = view.take(event)
        if event["event"] == AttemptEnded.name and event["error_kind"]:
            why = f"\n{event['error_kind']}: {printable(event['message'])}"
        if event["event"] == TurnSettled.name:
            ended = Text(view.status + why * bool(event["error_kind"]), style=STYLES.get(event["status"], ""))
            lines = view.rest()
        for line in lines:
            console.print(line, soft_wrap=True)
    console.print(ended)


def _input(given: dict[str, Any]) -> str:
    """Return a tool's input on one line."""
    text = orjson.dumps(given).decode()
    return text if len(text) <= _QUESTION else f"{text[:_QUESTION]}…"
