"""Leads the conversation of a live turn: its adapter's `Conversation`, on the lines that its agent prints."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import cast

import structlog

from adapters import errors
from adapters.contract import Adapter
from adapters.errors import TurnError
from adapters.live import Control, ControlRequest, Conversation, LiveAdapter, Permission, Verdict
from adapters.protocol.request import TurnRequest
from remote.errors import HostError, HostUnreachable
from remote.follower import Follower

_INTERRUPT_S = 3.0  # how long an agent that has to end may take to end by itself, before it is signalled
_AGAIN_S = 1.0  # between two tries to read what an agent was told
_LEAVE_S = 5.0  # how long a conversation may take to end when its agent has ended

log = structlog.get_logger(__name__)


class FollowedWire:
    """See `adapters.live.Wire`: a follower's agent."""

    def __init__(self, follower: Follower, said: Sequence[bytes]) -> None:
        self.said = tuple(said)
        self._follower = follower
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def write(self, line: bytes) -> None:
        """See `Wire.write`."""
        await self._follower.send(line)

    async def lines(self) -> AsyncIterator[bytes]:
        """See `Wire.lines`."""
        while (line := await self._lines.get()) is not None:
            yield line

    async def end_input(self) -> None:
        """See `Wire.end_input`."""
        await self._follower.end_input()

    def heard(self, lines: Sequence[bytes]) -> None:
        """The agent has printed these."""
        for line in lines:
            self._lines.put_nowait(line)

    def close(self) -> None:
        """It prints no more."""
        self._lines.put_nowait(None)


@dataclass(frozen=True, slots=True)
class Office:
    """What the attempt's run does for its conversation."""

    refusal: Callable[[], str | None]  # why no tool may run any more
    remaining_tokens: Callable[[], int | None]
    ask: Callable[[Permission, float], Awaitable[Verdict | None]]
    opened: Callable[[Conversation], None]  # it takes requests from now on
    failed: Callable[[TurnError], None]  # it cannot be led
    said: Callable[[], Awaitable[Sequence[bytes]]]  # what the agent was told so far


class LiveTurn:
    """One attempt's conversation, on the loop that follows its agent. `interrupt` and `close` never raise."""

    def __init__(self, adapter: Adapter, request: TurnRequest, office: Office) -> None:
        self._adapter = cast(LiveAdapter, adapter)  # its capabilities say so
        self._request = request
        self._office = office
        self._early: list[bytes] = []  # lines from before there is a wire
        self._wire: FollowedWire | None = None
        self._conversation: Conversation | None = None
        self._task: asyncio.Task[None] | None = None
        self._questions = 0

    @property
    def waits_for_us(self) -> bool:
        """Whether the agent is silent because its producer was asked something."""
        return self._questions > 0

    def begin(self, follower: Follower) -> None:
        """Lead it, from now to the agent's end."""
        self._task = asyncio.create_task(self._lead(follower))

    def heard(self, lines: Sequence[bytes]) -> None:
        """The agent has printed these, and the turn's state has them."""
        if self._task is not None and self._task.done():
            return  # nobody reads them any more
        if self._wire is None:
            self._early += lines
        else:
            self._wire.heard(lines)

    async def interrupt(self) -> None:
        """Have the agent break off, and wait a moment for its end."""
        conversation, task = self._conversation, self._task
        if conversation is None or task is None or task.done():
            return
        try:
            with contextlib.suppress(TimeoutError, TurnError):
                async with asyncio.timeout(_INTERRUPT_S):
                    await conversation.control(ControlRequest(Control.INTERRUPT))
                    await asyncio.wait((task,))
        except Exception:
            log.exception("an agent could not be told to break off; it is signalled")

    async def close(self, *, ended: bool) -> None:
        """The agent has ended, or is left to the next worker."""
        task = self._task
        if task is None:
            return
        if self._wire is not None and ended:
            self._wire.close()
            await asyncio.wait((task,), timeout=_LEAVE_S)
        task.cancel()
        await asyncio.wait((task,), timeout=_LEAVE_S)

    # -- the desk

    def refusal(self) -> str | None:
        """See `adapters.live.Desk`."""
        return self._office.refusal()

    def remaining_tokens(self) -> int | None:
        """See `adapters.live.Desk`."""
        return self._office.remaining_tokens()

    async def ask(self, permission: Permission, timeout_s: float) -> Verdict | None:
        """See `adapters.live.Desk`."""
        self._questions += 1
        try:
            return await self._office.ask(permission, timeout_s)
        finally:
            self._questions -= 1

    async def _said(self) -> Sequence[bytes]:
        """What the agent was told so far. A link that is cut just now ends no agent."""
        while True:
            try:
                return await self._office.said()
            except HostUnreachable as loss:
                log.warning("what an agent was told cannot be read yet", host=loss.host, error=str(loss))
                await asyncio.sleep(_AGAIN_S)

    async def _lead(self, follower: Follower) -> None:
        try:
            wire = FollowedWire(follower, await self._said())
            # It may import what takes its time.
            conversation = await asyncio.to_thread(self._adapter.converse, self._request, wire, self)
            wire.heard(self._early)
            self._early.clear()
            self._wire, self._conversation = wire, conversation
            self._office.opened(conversation)
            await conversation.run()
        except TurnError as error:
            self._office.failed(error)
        except HostError as error:
            self._office.failed(errors.HostUnreachable(str(error)))
        except Exception as error:
            log.exception("a conversation failed")
            self._office.failed(errors.AgentFailed(f"the conversation failed: {type(error).__name__}"))
