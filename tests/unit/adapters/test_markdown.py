"""Each event kind as text, as a chat thread shows it; fed with events as they are on the wire."""

from __future__ import annotations

import json

import pytest

from adapters import events as ev
from adapters.claude_code.parser import ClaudeCodeParser
from adapters.markdown import Transcript, transcript_text
from adapters.turn_state import TurnState, fold
from adapters.usage import ModelUsage, Tokens
from tests.support.recordings.claude_code import DATA
from workers.events.model import (
    AnyEvent,
    AttemptEnded,
    AttemptStarted,
    CheckFinished,
    EventsDropped,
    TurnSettled,
    to_wire,
)

BY_MODEL = {
    "sonnet": ModelUsage(Tokens(1000, 200, 30, 4), 0.02),
    "haiku": ModelUsage(Tokens(10, 5), 0.001),
}


def text_of(event: AnyEvent) -> str | None:
    return transcript_text(json.loads(to_wire(event, 1, 0.0)))


def transcript_of(*events: AnyEvent) -> list[str]:
    transcript = Transcript()
    return [text for event in events if (text := transcript.text(json.loads(to_wire(event, 1, 0.0))))]


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (ev.AssistantText("**as** it is\n"), "**as** it is\n"),
        (ev.Thinking("hm"), "*thinking:* _hm_"),
        (ev.Thinking("one\n\n two "), "*thinking:* _one_\n\n_two_"),
        (ev.Thinking("x" * 600), f"*thinking:* _{'x' * 500}_"),
        (ev.ToolStarted("t", "Bash", "make test"), "**[Bash:make test]**"),
        (ev.ToolStarted("t", "Read", "/srv/a.py", subagent=True), "**[Read:/srv/a.py]**"),
        (ev.ToolStarted("t", "TodoWrite"), "**[TodoWrite]**"),
        (ev.ToolFinished("t", "Bash", 1, None, "fine\n"), "```\nfine\n```"),
        (ev.ToolFinished("t", "Bash", 1, None, "y" * 400), f"```\n{'y' * 300}\n```"),
        (ev.ToolFinished("t", "Bash", 1, None, "a ``` b"), "````\na ``` b\n````"),
        (ev.ToolFinished("t", "Bash", 1, "Exit code 3"), "**Error:**\n```\nExit code 3\n```"),
        (ev.ToolFinished("t", "Bash", 1, "z" * 400), f"**Error:**\n```\n{'z' * 300}\n```"),
        (
            ev.TurnCompleted(ev.Report("success", text="Done.", by_model=BY_MODEL)),
            "Done.\n\n$0.0210 · 1,249 tokens",
        ),
        (
            ev.TurnFailed(ev.Report("error_max_turns", is_error=True, by_model={"new": ModelUsage(Tokens(7))})),
            "**Error:** error_max_turns\n\nunpriced · 7 tokens",
        ),
        (CheckFinished("make test", 0, 5, "12 passed"), "**[Test:make test]** passed"),
        (CheckFinished("make test", 2, 5, "1 failed"), "**[Test:make test]** exit 2\n```\n1 failed\n```"),
        (CheckFinished("make test", None, 5, ""), "**[Test:make test]** timed out"),
    ],
)
def test_event_is_told(event: AnyEvent, text: str) -> None:
    assert text_of(event) == text


@pytest.mark.parametrize(
    "event",
    [
        ev.SessionStarted("s"),
        ev.TokenUsage("m", Tokens(1)),
        ev.ApiRetry(1, 2, 3),
        ev.RateLimit("rejected"),
        ev.ModelFallback("a", "b"),
        ev.SubagentProgress("t", "started"),
        ev.Notification("hook"),
        ev.Malformed("{"),
        ev.Interrupted(),
        ev.Thinking(" "),
        ev.ToolFinished("t", "Bash", 1, None, ""),
        AttemptStarted(1, "claude-code", "local"),
        AttemptEnded(1, None, None, None),
        TurnSettled("completed", None),
    ],
)
def test_nothing_is_said_of_others(event: AnyEvent) -> None:
    assert text_of(event) is None


def test_gap_is_told() -> None:
    said = text_of(EventsDropped(12345, {"text": 12345}))
    assert said == "*The agent printed too much: 12,345 events are missing here.*"


def test_recorded_turn_reads_like_a_conversation() -> None:
    lines = (DATA / "a_parallel_tools.jsonl").read_bytes().splitlines()
    happened = fold(ClaudeCodeParser(), TurnState(), lines)
    texts = transcript_of(*(event for event in happened if event is not ev.HEARTBEAT))
    assert texts[:3] == ["I will run two.", "**[Bash:echo one]**", "**[Bash:echo two]**"]
    assert sorted(texts[3:5]) == ["```\none\n```", "```\ntwo\n```"]
    assert texts[5] == "Done both."
    assert texts[6].startswith("$0.")  # the result's text has just been said
    assert len(texts) == 7


def test_result_that_was_not_said_before_is_told() -> None:
    said = (ev.AssistantText("Counted."), ev.AssistantText("by a subagent", subagent=True))
    assert transcript_of(*said, ev.TurnCompleted(ev.Report("success", text="Counted.\n"))) == [
        "Counted.",
        "by a subagent",
    ]
    assert transcript_of(*said, ev.TurnCompleted(ev.Report("success", text="Done.")))[2:] == ["Done."]


def test_end_that_the_agent_has_not_told_is_told() -> None:
    started, why = AttemptStarted(1, "claude-code", "local"), "there is no directory /srv/x"
    ended, settled = (
        AttemptEnded(1, "invalid_workspace_cwd", why, None),
        TurnSettled("failed", "invalid_workspace_cwd"),
    )
    assert transcript_of(started, ended, settled) == [f"**Failed:** invalid_workspace_cwd: {why}"]
    assert transcript_of(TurnSettled("cancelled", "turn_cancelled")) == [
        "**Cancelled:** turn_cancelled: The turn was cancelled, or its agent was terminated by a signal"
    ]
    assert transcript_of(TurnSettled("failed", "of_tomorrow")) == ["**Failed:** of_tomorrow"]
    reported = ev.TurnFailed(ev.Report("error_max_turns", is_error=True))
    assert transcript_of(started, reported, ended, settled) == ["**Error:** error_max_turns"]
