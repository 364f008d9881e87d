"""What is recorded of an agent that prints too much, and what is only counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from random import Random

import orjson

from adapters import events as ev
from adapters.claude_code.parser import ClaudeCodeParser
from adapters.turn_state import TurnState, fold
from adapters.usage import Tokens
from workers.events.limit import EVENT_LIMIT, MAX_BYTES, MAX_EVENTS, MAX_MALFORMED, EventLimit
from workers.events.model import AnyEvent, EventsDropped, to_wire

TEXT, CALL = ev.AssistantText("said"), ev.ToolStarted("t1", "Bash")
USED = ev.TokenUsage("sonnet", Tokens(1, 2, 3, 4))
DONE = ev.TurnCompleted(ev.Report("success", text="done"))


def kept(limit: EventLimit, events: Iterable[ev.Event]) -> Counter[str]:
    """The names of those that are recorded."""
    return Counter(event.name for event in limit.within(events))


def test_usual_output_is_recorded_as_it_is_without_heartbeats() -> None:
    limit = EventLimit()
    assert limit.within([TEXT, ev.HEARTBEAT, CALL, ev.Heartbeat(), USED, DONE]) == [TEXT, CALL, USED, DONE]
    assert (limit.dropped, limit.summary()) == (0, [])


def test_unreadable_lines_are_kept_as_a_sample_and_counted() -> None:
    limit = EventLimit()
    recorded = limit.within([ev.Malformed(str(number)) for number in range(10_000)] + [DONE])
    assert recorded[:MAX_MALFORMED] == [ev.Malformed(str(number)) for number in range(MAX_MALFORMED)]
    notice, result = recorded[MAX_MALFORMED:]
    assert isinstance(notice, ev.Notification)
    assert (notice.topic, result) == (EVENT_LIMIT, DONE)
    missing = 10_000 - MAX_MALFORMED
    assert limit.summary() == [EventsDropped(missing, {"malformed": missing})]


def test_texts_leave_room_for_tool_calls_and_these_for_usage_and_results() -> None:
    limit = EventLimit(max_events=100)
    assert kept(limit, [TEXT] * 1000) == {"text": 60, "notification": 1}
    assert kept(limit, [CALL] * 1000) == {"tool_started": 30}
    assert kept(limit, [USED] * 5 + [DONE] * 1000) == {"token_usage": 5, "turn_completed": 5}
    assert limit.summary() == [
        EventsDropped(940 + 970 + 995, {"text": 940, "tool_started": 970, "turn_completed": 995})
    ]


def test_notice_is_given_once() -> None:
    limit = EventLimit(max_events=10)
    names = kept(limit, [TEXT] * 20) + kept(limit, [CALL] * 20) + kept(limit, [TEXT] * 20)
    assert names["notification"] == 1


def test_events_are_limited_by_their_size_too_and_smaller_ones_still_fit() -> None:
    limit = EventLimit(max_bytes=10_000)
    assert kept(limit, [ev.AssistantText("x" * 5000), ev.AssistantText("y" * 5000), TEXT]) == {
        "text": 2,
        "notification": 1,
    }
    assert limit.summary() == [EventsDropped(1, {"text": 1})]


def test_control_characters_count_as_what_they_become() -> None:
    text = ev.AssistantText("\x01" * 900)  # each takes six bytes
    assert kept(EventLimit(max_bytes=10_000), [text, text]) == {"text": 1, "notification": 1}


def test_nothing_that_an_agent_prints_makes_the_ledger_grow_beyond_the_limit() -> None:
    limit, rng, stored = EventLimit(max_events=200, max_bytes=20_000), Random(9), 0
    for _ in range(50):
        stored += sum(len(to_wire(event, 10**9, 1e9)) for event in limit.within(_anything(rng, 500)))
    stored += sum(len(to_wire(event, 10**9, 1e9)) for event in limit.summary())
    assert stored < 20_000 + 200 * 300
    assert MAX_BYTES + MAX_EVENTS * 300 < 50_000_000


def test_events_recorded_depend_neither_on_the_portions_nor_on_the_time() -> None:
    """A worker that takes over reads everything at once, and knows no durations."""
    rng = Random(15)
    printed = list(_anything(rng, 3000))
    later = [
        replace(event, duration_ms=None) if isinstance(event, ev.ToolFinished) else event for event in printed
    ]
    first, second = _limit(), _limit()
    live = [event for part in _portions(rng, printed) for event in first.within(part)] + first.summary()
    replayed = second.within(later) + second.summary()
    assert [event.name for event in live] == [event.name for event in replayed]
    assert live[-1] == replayed[-1]
    assert isinstance(live[-1], EventsDropped)


def test_state_of_the_turn_includes_what_was_dropped() -> None:
    limit, state = EventLimit(max_events=10), TurnState()
    lines = [_says(number) for number in range(100)]
    recorded = limit.within(fold(ClaudeCodeParser(), state, [*lines, *[b"x"] * 500]))
    assert len(recorded) < 20
    assert (state.text, state.malformed, state.unread) == ("word 99", 500, "x")
    assert state.seen["sonnet"].input_tokens == 100


def _limit() -> EventLimit:
    return EventLimit(max_events=500, max_bytes=40_000)


def _portions(rng: Random, events: Sequence[ev.Event]) -> Iterable[Sequence[ev.Event]]:
    start = 0
    while start < len(events):
        size = rng.randint(1, 300)
        yield events[start : start + size]
        start += size


def _anything(rng: Random, count: int) -> Iterable[ev.Event]:
    for number in range(count):
        yield rng.choice(
            (
                ev.Malformed("x" * rng.randint(0, 500)),
                ev.AssistantText("w" * rng.randint(0, 3000)),
                ev.ToolStarted(str(number), "Bash", "ls"),
                ev.ToolFinished(str(number), "Bash", rng.randint(0, 10**9), None, "o" * rng.randint(0, 300)),
                USED,
                ev.HEARTBEAT,
                ev.TurnFailed(ev.Report("error", text="e" * rng.randint(0, 1000))),
            )
        )


def _says(number: int) -> bytes:
    content = [{"type": "text", "text": f"word {number}"}]
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": str(number), "model": "sonnet", "content": content, "usage": usage}
    return orjson.dumps({"type": "assistant", "message": message})


def test_event_as_sent_names_what_was_dropped() -> None:
    (summary,) = _dropping_two()
    sent = orjson.loads(to_wire(summary, 7, 1.5))
    assert sent == {"seq": 7, "at": 1.5, "event": "events_dropped", "count": 2, "by_event": {"text": 2}}


def _dropping_two() -> list[AnyEvent]:
    limit = EventLimit(max_events=0)
    limit.within([TEXT, TEXT])
    return limit.summary()
