"""Runs the conversation of a live turn: its adapter's `Conversation`, on the lines that its agent prints."""

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

_INTERRUPT_S = 3.0  # how long an interrupted agent may take to end by itself, before it is signalled
_AGAIN_S = 1.0  # before another try to read an agent's input
_LEAVE_S = 5.0  # how long a conversation may take to end after its agent

log = structlog.get_logger(__name__)


class FollowedWire:
    """An `adapters.live.Wire` to the agent of a follower."""

    def __init__(self, follower: Follower, said: Sequence[bytes]) -> None:
        self.said = tuple(said)
        self._follower = follower
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def write(self, line: bytes) -> None:
        """Send a line to the agent."""
        await self._follower.send(line)

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield the lines that the agent prints."""
        while (line := await self._lines.get()) is not None:
            yield line

    async def end_input(self) -> None:
        """Close the agent's input."""
        await self._follower.end_input()

    def heard(self, lines: Sequence[bytes]) -> None:
        """Queue lines that the agent printed."""
        for line in lines:
            self._lines.put_nowait(line)

    def close(self) -> None:
        """End the lines: the agent prints no more."""
        self._lines.put_nowait(None)


@dataclass(frozen=True, slots=True)
class Office:
    """Functions of the attempt's run that its conversation uses."""

    refusal: Callable[[], str | None]  # why no tool may run any more
    remaining_tokens: Callable[[], int | None]
    ask: Callable[[Permission, float], Awaitable[Verdict | None]]
    opened: Callable[[Conversation], None]  # called when it can take requests
    failed: Callable[[TurnError], None]  # called when it fails
    said: Callable[[], Awaitable[Sequence[bytes]]]  # the agent's input so far


class LiveTurn:
    """Conversation of one attempt, on the loop that follows its agent. `interrupt` and `close` never raise."""

    def __init__(self, adapter: Adapter, request: TurnRequest, office: Office) -> None:
        self._adapter = cast(LiveAdapter, adapter)  # its capabilities say so
        self._request = request
        self._office = office
        self._early: list[bytes] = []  # lines printed before the wire exists
        self._wire: FollowedWire | None = None
        self._conversation: Conversation | None = None
        self._task: asyncio.Task[None] | None = None
        self._questions = 0

    @property
    def waits_for_us(self) -> bool:
        """True while the agent is silent because its producer was asked a question."""
        return self._questions > 0

    def begin(self, follower: Follower) -> None:
        """Start the conversation, which lasts until the agent ends."""
        self._task = asyncio.create_task(self._lead(follower))

    def heard(self, lines: Sequence[bytes]) -> None:
        """Pass on lines that the agent printed, once the turn's state includes them."""
        if self._task is not None and self._task.done():
            return  # they are no longer read
        if self._wire is None:
            self._early += lines
        else:
            self._wire.heard(lines)

    async def interrupt(self) -> None:
        """Interrupt the agent, and wait a moment for its end."""
        conversation, task = self._conversation, self._task
        if conversation is None or task is None or task.done():
            return
        try:
            with contextlib.suppress(TimeoutError, TurnError):
                async with asyncio.timeout(_INTERRUPT_S):
                    await conversation.control(ControlRequest(Control.INTERRUPT))
                    await asyncio.wait((task,))
        except Exception:
            log.exception("could not interrupt an agent; it is signalled instead")

    async def close(self, *, ended: bool) -> None:
        """End the conversation: the agent has ended, or is left to the next worker."""
        task = self._task
        if task is None:
            return
        if self._wire is not None and ended:
            self._wire.close()
            await asyncio.wait((task,), timeout=_LEAVE_S)
        task.cancel()
        await asyncio.wait((task,), timeout=_LEAVE_S)

    # -- adapters.live.Desk

    def refusal(self) -> str | None:
        """Return why the agent may use no more tools; None: it may."""
        return self._office.refusal()

    def remaining_tokens(self) -> int | None:
        """Return how many tokens the turn may still use; None: no limit."""
        return self._office.remaining_tokens()

    async def ask(self, permission: Permission, timeout_s: float) -> Verdict | None:
        """Ask the producer for permission; None: no answer in time."""
        self._questions += 1
        try:
            return await self._office.ask(permission, timeout_s)
        finally:
            self._questions -= 1

    async def _said(self) -> Sequence[bytes]:
        """Return the agent's input so far. A connection lost meanwhile must not end the agent, so retry."""
        while True:
            try:
                return await self._office.said()
            except HostUnreachable as loss:
                log.warning("cannot read an agent's input yet", host=loss.host, error=str(loss))
                await asyncio.sleep(_AGAIN_S)

    async def _lead(self, follower: Follower) -> None:
        try:
            wire = FollowedWire(follower, await self._said())
            # It may import slow modules.
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
            log.exception("conversation failed")
            self._office.failed(errors.AgentFailed(f"the conversation failed: {type(error).__name__}"))
