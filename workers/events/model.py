"""Events of a turn that the worker adds to the agent's, and the wire format of all events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import orjson
from pydantic import JsonValue

from adapters.events import Event

_HEAD: Final = ("seq", "at", "event", "aside")


@dataclass(frozen=True, slots=True)
class AgentChosen:
    """The agent chosen for a request that left it open; the turn keeps it."""

    name: ClassVar[str] = "agent_chosen"
    agent: str
    reason: str


@dataclass(frozen=True, slots=True)
class AttemptStarted:
    """Start of an attempt; has the attempt's first sequence number."""

    name: ClassVar[str] = "attempt_started"
    attempt: int
    agent: str
    host: str
    agent_version: str | None = None  # last reported by the host, at most minutes before; None: unknown


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    """End of an attempt; `retry_at` is Unix time in seconds if another one follows."""

    name: ClassVar[str] = "attempt_ended"
    attempt: int
    error_kind: str | None
    message: str | None
    retry_at: float | None


@dataclass(frozen=True, slots=True)
class EventsDropped:
    """What was not recorded of an attempt, because its agent printed too much; see `workers.events.limit`."""

    name: ClassVar[str] = "events_dropped"
    count: int
    by_event: Mapping[str, int]  # by the events' names


@dataclass(frozen=True, slots=True)
class CheckFinished:
    """End of a session's test command, which runs after the agent of its turn."""

    name: ClassVar[str] = "check_finished"
    command: str
    exit: int | None  # None: it did not end in time
    duration_ms: int
    tail: str  # the end of what it printed, at most 4096 characters


@dataclass(frozen=True, slots=True)
class TurnSettled:
    """End of the turn; its last event."""

    name: ClassVar[str] = "turn_settled"
    status: str
    error_kind: str | None


@dataclass(frozen=True, slots=True)
class ControlRequested:
    """A producer's request to the agent, about to be carried out."""

    name: ClassVar[str] = "control_requested"
    request_id: str
    control: str  # see `adapters.live.Control`
    by: str  # the sender, in the producer's own words
    value: str | None  # the model or the mode; None for sent text


@dataclass(frozen=True, slots=True)
class ControlAnswered:
    """Outcome of a producer's request."""

    name: ClassVar[str] = "control_answered"
    request_id: str
    control: str
    ok: bool
    response: Mapping[str, JsonValue] | None  # the agent's; None: it failed
    error_kind: str | None  # None: it succeeded
    message: str | None


@dataclass(frozen=True, slots=True)
class PermissionRequested:
    """The agent's question whether to use a tool that its rules leave open; answers count until `expires_at`."""

    name: ClassVar[str] = "permission_requested"
    request_id: str
    tool: str
    tool_use_id: str
    input: Mapping[str, JsonValue]
    expires_at: float  # Unix time, seconds


@dataclass(frozen=True, slots=True)
class PermissionAnswered:
    """Answer to a question; without one in time, the request's own default applies."""

    name: ClassVar[str] = "permission_answered"
    request_id: str
    allowed: bool | None  # None: no answer
    reason: str
    by: str | None


@dataclass(frozen=True, slots=True)
class Aside:
    """An event that the agent did not print, ready to send; see `workers.events.asides`."""

    name: str
    fields: bytes  # a JSON object


AsideEvent = Event | ControlRequested | ControlAnswered | PermissionRequested | PermissionAnswered
AnyEvent = (
    Event | AgentChosen | AttemptStarted | EventsDropped | CheckFinished | AttemptEnded | TurnSettled | Aside
)


def own_fields(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return an event's fields on the wire, without those that all events have."""
    return {name: value for name, value in event.items() if name not in _HEAD}


def to_wire(event: AnyEvent, seq: int, at: float) -> bytes:
    """Encode an event as a JSON object: number within the turn, Unix time in seconds, name, then its own fields.

    Asides are marked as such.
    """
    head = b'{"seq":%d,"at":%.3f,"event":"%s"' % (seq, at, event.name.encode())
    if isinstance(event, Aside):
        head, fields = head + b',"aside":true', event.fields
    else:
        fields = orjson.dumps(event)
    return head + (b"}" if fields == b"{}" else b"," + fields[1:])
