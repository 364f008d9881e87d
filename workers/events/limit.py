"""The limit on the events of one attempt: what an agent prints beyond it is counted, and told by one event.

Only the ledger and watchers are spared these events. The turn's state, and so its result and its usage, includes
every line that the agent printed.

Which events are dropped depends on the agent's lines alone, never on the time or the worker: a worker that takes
over reads the output from the beginning, and must give each event the number that it already has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from types import NoneType
from typing import Final

import orjson

from adapters import events as ev
from workers.events.model import AnyEvent, EventsDropped

MAX_EVENTS: Final = 50_000
MAX_BYTES: Final = 32 * 2**20  # of their texts, as JSON
MAX_MALFORMED: Final = 100  # lines, which are enough to see what is wrong with them

EVENT_LIMIT: Final = "event_limit"  # notification topic: from here on, events are dropped
_NOTICE = ev.Notification(
    EVENT_LIMIT, "the agent prints too much: from here on, some events are dropped, and counted at its end"
)

_TEXT, _CALL = 0.6, 0.9
# What share of the limit must not be used up yet for an event of this name; without one, all of it. So a flood of
# texts leaves room for tool calls, and these for usage, errors and results.
_SHARES: Final = {
    **dict.fromkeys(
        (
            ev.Malformed.name,
            ev.AssistantText.name,
            ev.AnswerBegun.name,
            ev.Thinking.name,
            ev.Notification.name,
            ev.ApiRetry.name,
        ),
        _TEXT,
    ),
    **dict.fromkeys(
        (ev.ToolStarted.name, ev.ToolFinished.name, ev.ToolInvoked.name, ev.SubagentProgress.name), _CALL
    ),
}
# Durations are unknown to a worker that reads the output later; numbers are short.
_UNCOUNTED = (int, float, NoneType)


class EventLimit:
    """The limit on one attempt's events."""

    def __init__(self, max_events: int = MAX_EVENTS, max_bytes: int = MAX_BYTES) -> None:
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._events = 0
        self._bytes = 0
        self._malformed = 0
        self._dropped: Counter[str] = Counter()  # by name

    @property
    def dropped(self) -> int:
        """Number of events dropped so far."""
        return self._dropped.total()

    def within(self, events: Iterable[ev.Event]) -> list[AnyEvent]:
        """Return the events to record, without heartbeats; before the first that is dropped, a notice."""
        kept: list[AnyEvent] = []
        for event in events:
            name = event.name
            if name == ev.Heartbeat.name:
                continue
            if self._admits(name, event):
                kept.append(event)
                continue
            if not self._dropped:
                kept.append(_NOTICE)
            self._dropped[name] += 1
        return kept

    def summary(self) -> list[AnyEvent]:
        """Return the event that tells what was dropped, at the end of the output; none if nothing was."""
        return [EventsDropped(self.dropped, dict(self._dropped))] if self._dropped else []

    def _admits(self, name: str, event: ev.Event) -> bool:
        if name == ev.Malformed.name:
            if self._malformed >= MAX_MALFORMED:
                return False
            self._malformed += 1
        share = _SHARES.get(name, 1.0)
        if self._events >= share * self._max_events:
            return False
        size = _size(event)
        if self._bytes + size > share * self._max_bytes:
            return False
        self._events += 1
        self._bytes += size
        return True


def _size(event: ev.Event) -> int:
    """Return the size of an event's texts, the same for every worker that reads it."""
    values = (getattr(event, name) for name in event.__slots__)
    return len(orjson.dumps([value for value in values if not isinstance(value, _UNCOUNTED)]))
