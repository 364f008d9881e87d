"""Producers' messages to a running turn, as sent over the broker.

A message takes effect once, however often it is sent: its `request_id` identifies it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from adapters.live import Control, ControlRequest, Verdict

COMMAND: Final = "runturn_say"  # Celery remote control command
MAX_REQUEST_ID: Final = 200  # characters


@dataclass(frozen=True, slots=True)
class Said:
    """One message: a request to the agent, or the verdict on one of its questions."""

    turn_id: str
    request_id: str  # of the request or the question
    by: str  # the sender, in the producer's own words
    expires_at: float  # when its sender stops waiting, in Unix time on the ledger's clock
    what: ControlRequest | Verdict = field(repr=False)  # may contain a prompt


@dataclass(frozen=True, slots=True)
class Reply:
    """Immediate reply of the worker that holds the turn."""

    refused: str | None = None  # why; None: it is accepted
    outcome: Mapping[str, Any] | None = None  # of an earlier delivery: the fields of the event with its outcome


class _Document(BaseModel):
    """The message on the wire."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    turn_id: str
    request_id: Annotated[str, Field(min_length=1, max_length=MAX_REQUEST_ID)]
    by: Annotated[str, Field(max_length=200)]
    expires_at: float
    control: Control | None = None
    value: str | None = None
    allowed: bool | None = None
    reason: str = ""


def encode(said: Said) -> dict[str, Any]:
    """Return the arguments of the command."""
    head = {
        "turn_id": said.turn_id,
        "request_id": said.request_id,
        "by": said.by,
        "expires_at": said.expires_at,
    }
    if isinstance(said.what, Verdict):
        return {**head, "allowed": said.what.allowed, "reason": said.what.reason}
    return {**head, "control": said.what.control.value, "value": said.what.value}


def decode(arguments: Mapping[str, Any]) -> Said:
    """Parse the arguments of the command. Raises ValueError, without any value in its text."""
    try:
        given = _Document.model_validate(arguments)
    except ValidationError as error:
        fields = ", ".join(sorted({".".join(map(str, fault["loc"])) for fault in error.errors()}))
        raise ValueError(f"not understood: {fields}") from None
    what: ControlRequest | Verdict
    if given.control is not None:
        what = ControlRequest(given.control, given.value)
    elif given.allowed is not None:
        what = Verdict(given.allowed, given.reason)
    else:
        raise ValueError("not understood: neither a request nor a verdict")
    return Said(given.turn_id, given.request_id, given.by, given.expires_at, what)
