"""Events of a turn that the worker itself adds to the agent's, and how all of them look on the wire."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import orjson

from adapters.events import Event


@dataclass(frozen=True, slots=True)
class AgentChosen:
    """A request had left its agent open; the turn stays with this one."""

    name: ClassVar[str] = "agent_chosen"
    agent: str
    reason: str


@dataclass(frozen=True, slots=True)
class AttemptStarted:
    """An attempt begins; it has the attempt's first sequence number."""

    name: ClassVar[str] = "attempt_started"
    attempt: int
    agent: str
    host: str


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    """An attempt has ended; `retry_at` is Unix time in seconds if another one follows."""

    name: ClassVar[str] = "attempt_ended"
    attempt: int
    error_kind: str | None
    message: str | None
    retry_at: float | None


@dataclass(frozen=True, slots=True)
class TurnSettled:
    """The turn is over; its last event."""

    name: ClassVar[str] = "turn_settled"
    status: str
    error_kind: str | None


AnyEvent = Event | AgentChosen | AttemptStarted | AttemptEnded | TurnSettled


def to_wire(event: AnyEvent, seq: int, at: float) -> bytes:
    """One JSON object: its number within the turn, its Unix time in seconds, its name, then its own fields."""
    head = b'{"seq":%d,"at":%.3f,"event":"%s"' % (seq, at, event.name.encode())
    fields = orjson.dumps(event)
    return head + (b"}" if fields == b"{}" else b"," + fields[1:])
