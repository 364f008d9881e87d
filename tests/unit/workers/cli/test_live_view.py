"""What the live view shows, with events as they are on the wire and a clock that stands still."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from adapters import events as ev
from adapters.claude_code.adapter import ClaudeCode
from adapters.turn_state import TurnState, fold
from adapters.usage import ModelUsage, Tokens
from workers.cli.live_view import TurnView, show_live
from workers.events.limit import EVENT_LIMIT
from workers.events.model import AnyEvent, AttemptEnded, AttemptStarted, EventsDropped, TurnSettled, to_wire

START = 1_800_000_000.0
MODEL = "claude-sonnet-4-5"


def wire(*events: AnyEvent) -> list[dict[str, Any]]:
    """Events as a watcher gets them."""
    return [json.loads(to_wire(event, seq, START)) for seq, event in enumerate(events, 1)]


def price(_: str, model: str, tokens: Tokens) -> float | None:
    """A dollar for a thousand tokens, of models that have a price."""
    return None if model == "unheard-of" else tokens.total / 1000


def view_of(*events: AnyEvent, after_s: float = 0.0) -> TurnView:
    """A view that has seen these events, some seconds after the first."""
    view = TurnView(price, lambda: START + after_s)
    for event in wire(*events):
        view.take(event)
    return view


def lines(*events: AnyEvent) -> list[str]:
    """What stays on the screen."""
    view = TurnView(price, lambda: START)
    return [line.plain for event in wire(*events) for line in view.take(event)]


def recorded(path: Path) -> list[AnyEvent]:
    """A recorded turn's events between those that a worker adds."""
    happened = fold(
        ClaudeCode().parser(), TurnState(), [line for line in path.read_bytes().splitlines() if line], 0.0
    )
    agents = [event for event in happened if event is not ev.HEARTBEAT]
    ending = (AttemptEnded(1, None, None, None), TurnSettled("completed", None))
    return [AttemptStarted(1, "claude-code", "local"), *agents, *ending]


def test_recorded_turn_line_by_line(recording: Path) -> None:
    screen = io.StringIO()
    show_live(wire(*recorded(recording)), price, lambda: START, console=Console(file=screen, width=40))
    assert screen.getvalue().splitlines() == [
        "▸ claude-code on local, attempt 1",
        "  claude-sonnet-4-5 · session 55335d49-1cc1-427c-9557-f27b71f9023c",  # not cut: this is no terminal
        "I will run two.",
        "  → Bash echo one",
        "  → Bash echo two",
    ]  # the last text is the result, which the command prints


def test_terminal_shows_one_line_that_moves_and_then_goes(recording: Path) -> None:
    screen = io.StringIO()
    console = Console(file=screen, width=100, force_terminal=True, color_system=None, legacy_windows=False)
    show_live(wire(*recorded(recording)), price, lambda: START + 7, console=console)
    drawn = screen.getvalue()
    assert "7.0 s" in drawn
    assert drawn.rstrip().endswith("\x1b[2K")  # the moving line is erased at the end


def test_status_has_time_tokens_cost_and_the_tool_in_hand() -> None:
    begun = (
        AttemptStarted(1, "a", "h"),
        ev.SessionStarted("s", MODEL),
        ev.TokenUsage(MODEL, Tokens(1000, 1, 200, 34)),
    )
    assert view_of(AttemptStarted(1, "a", "h"), after_s=2.5).status == "2.5 s · starting"
    assert view_of(*begun, after_s=9).status == "9.0 s · ≥ 1,235 tokens · ≥ $1.2350 · thinking"
    busy = (*begun, ev.ToolStarted("1", "Bash", "make test"), ev.ToolStarted("2", "Read", "a.py"))
    assert view_of(*busy).status.endswith(" · Read a.py")
    assert view_of(*busy, ev.ToolFinished("2", "Read", 5)).status.endswith(" · Bash make test")
    done = (*busy, ev.ToolFinished("2", "Read", 5), ev.ToolFinished("1", "Bash", 5))
    assert view_of(*done).status.endswith(" · thinking")


def test_numbers_are_exact_once_the_agent_has_reported() -> None:
    report = ev.Report("success", by_model={MODEL: ModelUsage(Tokens(1000, 500, 0, 0), 0.0105)})
    view = view_of(AttemptStarted(1, "a", "h"), ev.TokenUsage(MODEL, Tokens(1000, 1)), ev.TurnCompleted(report))
    assert view.status == "0.0 s · 1,500 tokens · $0.0105 · finishing"


def test_model_without_a_price_is_never_free() -> None:
    view = view_of(ev.TokenUsage(MODEL, Tokens(10)), ev.TokenUsage("unheard-of", Tokens(10)))
    assert "≥ 20 tokens · unpriced" in view.status


def test_late_joiner_sees_the_time_since_the_first_event() -> None:
    assert view_of(AttemptStarted(1, "a", "h"), after_s=3600).status.startswith("3600.0 s")


def test_clock_behind_the_workers_shows_no_negative_time() -> None:
    assert view_of(AttemptStarted(1, "a", "h"), after_s=-5).status.startswith("0.0 s")


def test_what_goes_wrong_is_shown() -> None:
    shown = lines(
        ev.ToolStarted("1", "Bash", "false"),
        ev.ToolFinished("1", "Bash", 1234, "exit code 1\nmore"),
        ev.ApiRetry(1, 10, 2500, 529, "overloaded"),
        ev.ModelFallback("big", "small", "overloaded"),
        ev.RateLimit("allowed_warning", limit="five_hour"),
        ev.Malformed("{{{"),
        ev.Notification(EVENT_LIMIT, "the agent prints too much"),
        EventsDropped(1234, {"malformed": 1230, "text": 4}),
        ev.AdapterFault("the adapter of agent a is at fault"),
        AttemptEnded(1, "overloaded", "the API is overloaded", START + 4),
    )
    assert shown == [
        "  → Bash false",
        "  ✗ Bash 1.2 s: exit code 1",
        "  … API: 529; retry in 2.5 s (1 of 10)",
        "  … big → small (overloaded)",
        "  … account limit five_hour: allowed_warning",
        "  ? unreadable line: {{{",
        "  … the agent prints too much",
        "  … the agent printed too much; events dropped: 1,230 malformed, 4 text",
        "  ✗ the adapter of agent a is at fault",
        "  ↻ overloaded: the API is overloaded — retry in 4.0 s",
    ]


def test_only_the_last_text_is_held_back() -> None:
    first, second = ev.AssistantText("one"), ev.AssistantText("two")
    assert lines(first) == []
    assert lines(first, second) == ["one"]
    assert lines(first, ev.ToolStarted("1", "Bash", "ls")) == ["one", "  → Bash ls"]
    assert lines(first, second, TurnSettled("completed", None)) == ["one"]


@pytest.mark.parametrize(
    "event", [ev.AssistantText("a\x1b[2Jb\tc\nd"), ev.ToolStarted("1", "a", "\x1b]0;x\x07\x9b2J")]
)
def test_text_of_an_agent_does_not_steer_the_terminal(event: AnyEvent) -> None:
    (line, *_) = lines(event, ev.ToolStarted("2", "Bash", ""))
    assert not any((ord(char) < 32 and char not in "\n\t") or 127 <= ord(char) < 160 for char in line)


def test_event_of_another_version_is_passed_over() -> None:
    view = TurnView(price, lambda: START)
    assert view.take({"seq": 1, "at": START, "event": "invented_later", "x": 1}) == []
