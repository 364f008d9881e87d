"""Live turns, which accept input while they run: the interfaces of their adapter and their worker.

Every line that the agent prints goes to the parser, as in any turn, so events, usage and cost do not depend on the
conversation, and a worker that takes over reproduces the same events. Like any turn, a live turn outlives its
worker: its input is kept in the spool, and the next worker continues the same conversation (`Wire.said`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from pydantic import JsonValue

from adapters.contract import Adapter
from adapters.protocol.request import TurnRequest


class Wire(Protocol):
    """The agent's standard input and output."""

    @property
    def said(self) -> tuple[bytes, ...]:
        """Return the input lines so far, including `Command.stdin` and those sent by earlier workers."""
        ...

    async def write(self, line: bytes) -> None:
        """Send one line, given without its newline. Survives lost connections; returns once it is on its way."""
        ...

    def lines(self) -> AsyncIterator[bytes]:
        """Yield all output lines of the attempt from the first, verbatim, until the agent exits."""
        ...

    async def end_input(self) -> None:
        """Close the input: the agent exits once it has answered."""
        ...


class Control(StrEnum):
    """Control requests of a live turn."""

    INTERRUPT = "interrupt"
    SEND = "send"
    SET_MODEL = "set_model"
    SET_PERMISSION_MODE = "set_permission_mode"
    SERVER_INFO = "server_info"
    CONTEXT_USAGE = "context_usage"


@dataclass(frozen=True, slots=True)
class ControlRequest:
    """One request to a live turn."""

    control: Control
    value: str | None = field(default=None, repr=False)  # the text, which is a prompt; the model; the mode


@dataclass(frozen=True, slots=True)
class Permission:
    """A request to use a tool that the agent's rules neither allow nor deny."""

    tool: str
    tool_use_id: str
    input: Mapping[str, JsonValue] = field(default_factory=dict, repr=False)  # may contain secrets


@dataclass(frozen=True, slots=True)
class Verdict:
    """The producer's answer to a permission request."""

    allowed: bool
    reason: str = ""


class Desk(Protocol):
    """Worker services for a live turn."""

    def refusal(self) -> str | None:
        """Return why no more tools may run, worded for the agent; None if they may."""
        ...

    def remaining_tokens(self) -> int | None:
        """Return how many tokens the attempt may still use; None if there is no limit."""
        ...

    async def ask(self, permission: Permission, timeout_s: float) -> Verdict | None:
        """Ask the producer; return None if no answer arrives in time."""
        ...


class Conversation(Protocol):
    """Conversation of one attempt with its agent."""

    async def run(self) -> None:
        """Run the conversation from the first line until the agent exits. Raise TurnError if that is impossible.

        Cancelled when the worker shuts down; another worker continues.
        """
        ...

    async def control(self, request: ControlRequest) -> Mapping[str, JsonValue]:
        """Carry out a request and return the agent's answer. Raise InvalidRequest for an unsupported one.

        May be called as soon as the conversation exists; waits until the agent is ready. Several requests may be
        in flight; one that takes too long is cancelled. No answer contains prompt text.
        """
        ...


class LiveAdapter(Adapter, Protocol):
    """Adapter whose capabilities include `live`."""

    def converse(self, request: TurnRequest, wire: Wire, desk: Desk) -> Conversation:
        """Return the conversation of one attempt. Raise TurnError if it cannot be created."""
        ...
