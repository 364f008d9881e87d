"""Events of a turn that the worker itself adds to the agent's, and how all of them look on the wire."""

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
    agent_version: str | None = None  # as the host was seen to have it, at most minutes before; None: not known


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    """An attempt has ended; `retry_at` is Unix time in seconds if another one follows."""

    name: ClassVar[str] = "attempt_ended"
    attempt: int
    error_kind: str | None
    message: str | None
    retry_at: float | None


@dataclass(frozen=True, slots=True)
class CheckFinished:
    """A test command of a session has ended, after the agent of its turn."""

    name: ClassVar[str] = "check_finished"
    command: str
    exit: int | None  # None: it did not end in time
    duration_ms: int
    tail: str  # the end of what it printed, at most 4096 characters


@dataclass(frozen=True, slots=True)
class TurnSettled:
    """The turn is over; its last event."""

    name: ClassVar[str] = "turn_settled"
    status: str
    error_kind: str | None


@dataclass(frozen=True, slots=True)
class ControlRequested:
    """A producer asks something of the agent: it is about to be done."""

    name: ClassVar[str] = "control_requested"
    request_id: str
    control: str  # see `adapters.live.Control`
    by: str  # who asks, in the producer's own words
    value: str | None  # the model or the mode; of a text that is sent, nothing


@dataclass(frozen=True, slots=True)
class ControlAnswered:
    """What came of it."""

    name: ClassVar[str] = "control_answered"
    request_id: str
    control: str
    ok: bool
    response: Mapping[str, JsonValue] | None  # the agent's; None: it failed
    error_kind: str | None  # None: it did not
    message: str | None


@dataclass(frozen=True, slots=True)
class PermissionRequested:
    """The agent wants to use a tool that its rules leave open; the producer may answer until then."""

    name: ClassVar[str] = "permission_requested"
    request_id: str
    tool: str
    tool_use_id: str
    input: Mapping[str, JsonValue]
    expires_at: float  # Unix time, seconds


@dataclass(frozen=True, slots=True)
class PermissionAnswered:
    """What became of it; without an answer in time, the request's own default holds."""

    name: ClassVar[str] = "permission_answered"
    request_id: str
    allowed: bool | None  # None: nobody has answered
    reason: str
    by: str | None


@dataclass(frozen=True, slots=True)
class Aside:
    """An event that the agent has not printed, ready to be sent; see `workers.events.asides`."""

    name: str
    fields: bytes  # a JSON object


AsideEvent = Event | ControlRequested | ControlAnswered | PermissionRequested | PermissionAnswered
AnyEvent = Event | AgentChosen | AttemptStarted | CheckFinished | AttemptEnded | TurnSettled | Aside


def own_fields(event: Mapping[str, Any]) -> dict[str, Any]:
    """What an event on the wire has, but for what all of them have."""
    return {name: value for name, value in event.items() if name not in _HEAD}


def to_wire(event: AnyEvent, seq: int, at: float) -> bytes:
    """One JSON object: its number within the turn, its Unix time in seconds, its name, then its own fields.

    Asides are marked as such.
    """
    head = b'{"seq":%d,"at":%.3f,"event":"%s"' % (seq, at, event.name.encode())
    if isinstance(event, Aside):
        head, fields = head + b',"aside":true', event.fields
    else:
        fields = orjson.dumps(event)
    return head + (b"}" if fields == b"{}" else b"," + fields[1:])
