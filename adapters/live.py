"""Turns that can be talked to while they run: what their adapter offers, and what their worker gives it.

Every line that the agent prints goes to the parser, as in any turn, so events, usage and the bill do not depend on
what is said here, and a worker that takes over tells the same events again. A live turn outlives its worker like
any other: its input is kept in the spool, and the next worker goes on with the same conversation (`Wire.said`).
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
        """The lines of its input so far, `Command.stdin` among them: a worker before us may have sent some."""
        ...

    async def write(self, line: bytes) -> None:
        """Send one line, without its newline. Kept through lost links; returns once it is on its way."""
        ...

    def lines(self) -> AsyncIterator[bytes]:
        """All lines that it prints, from the first one of the attempt, as printed; ends with the agent."""
        ...

    async def end_input(self) -> None:
        """Nothing more follows: the agent ends when it has answered."""
        ...


class Control(StrEnum):
    """What a live turn can be asked."""

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
    """The agent wants to use a tool that its rules leave open."""

    tool: str
    tool_use_id: str
    input: Mapping[str, JsonValue] = field(default_factory=dict, repr=False)  # may hold anything


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the producer says to that."""

    allowed: bool
    reason: str = ""


class Desk(Protocol):
    """What a live turn asks its worker."""

    def refusal(self) -> str | None:
        """Why no tool may run any more, in the words that the agent is told; None: it may."""
        ...

    def remaining_tokens(self) -> int | None:
        """How many tokens the attempt may use yet; None: there is no limit."""
        ...

    async def ask(self, permission: Permission, timeout_s: float) -> Verdict | None:
        """Ask the producer; None: nobody has answered in time."""
        ...


class Conversation(Protocol):
    """One attempt's talk with its agent."""

    async def run(self) -> None:
        """Lead it, from the first line to the agent's end. Raises TurnError when it cannot be led.

        Cancelled when the worker leaves: another one goes on.
        """
        ...

    async def control(self, request: ControlRequest) -> Mapping[str, JsonValue]:
        """Do what is asked, and return the agent's answer. Raises InvalidRequest for what it does not take.

        It may be asked as soon as there is a conversation, and waits until the agent is ready. Several requests
        may be under way; one that takes too long is cancelled. No answer holds what was prompted.
        """
        ...


class LiveAdapter(Adapter, Protocol):
    """An adapter whose capabilities say `live`."""

    def converse(self, request: TurnRequest, wire: Wire, desk: Desk) -> Conversation:
        """The talk of one attempt. Raises TurnError if there can be none."""
        ...
