"""The end of one attempt, as its worker brings it about: for a limit, for a producer, or for the next worker.

What fails here is a fault of ours. An agent must not run on without its limits because of one, so the attempt is
left then like one whose reader failed: its turn is set aside, and whoever comes back looks at the limits again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import structlog

from adapters.contract import Adapter
from adapters.errors import TurnCancelled, TurnError
from ops.ledger import Claim
from remote.follower import Follower
from remote.spool import Exit
from workers.ledger_calls import WorkerStopping
from workers.limits import LimitWatch, SoftStop
from workers.live.conversation import LiveTurn

_CHECK_S = 0.5  # how often limits are looked at
_FROZEN_S = 5.0  # between two looks: this process, or its machine, was stopped meanwhile

log = structlog.get_logger(__name__)


class Termination:
    """Belongs to the loop that follows the attempt. `stop` and `detach` may be called at any time."""

    def __init__(
        self,
        claim: Claim,
        adapter: Adapter,
        watch: LimitWatch,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`watch` is told by others what the agent does and spends."""
        self.why: TurnError | None = None  # the agent is to end; None: it is not
        self._claim = claim
        self._adapter = adapter
        self._watch = watch
        self._clock = clock
        self._sleep = sleep
        self._follower: Follower | None = None
        self._live: LiveTurn | None = None
        self._soft_stop: SoftStop | None = None
        self._detaching = False
        self._fault: Exception | None = None
        self._tasks: set[asyncio.Task[None]] = set()  # nobody else holds them

    def stop(self, why: TurnError) -> None:
        """Have the agent ended; the first reason stands."""
        if self.why is None:
            self.why = why
            self._pass_on()

    def detach(self) -> None:
        """Leave the agent to the next worker."""
        self._detaching = True
        self._pass_on()

    @contextlib.asynccontextmanager
    async def seen_to(self, follower: Follower, live: LiveTurn | None) -> AsyncIterator[None]:
        """Pass on what was asked before, and look at the limits while the agent is followed."""
        self._follower, self._live = follower, live
        self._pass_on()
        checks = self._start(self._check_limits)
        try:
            yield
        finally:
            checks.cancel()

    def refusal(self) -> str | None:
        """Why the agent is to use no tool any more, in the words that it is told; None: it may.

        The limits are looked at for it, so an agent that is refused one has been asked to end.
        """
        now = self._clock()
        self._ask_to_end(self._watch.ending(now))
        if self._soft_stop is not None:
            return self._soft_stop.reason
        return self._watch.forbids(now) or (None if self.why is None else self.why.message)

    def of(self, end: Exit) -> TurnError | None:
        """Why the agent was ended, or asked to end, by us or by an earlier worker; None: it ended by itself."""
        if self.why is not None:
            return self.why
        now = self._clock()
        asked = self._soft_stop or self._watch.ending(now)
        if end.reason != "cancel":
            return asked.error if asked is not None else None
        if self._claim.cancel_requested:
            return TurnCancelled()
        return self._watch.exceeded(now) or (asked.error if asked is not None else self._watch.fell_silent())

    def left(self) -> Exception:
        """What is to be raised for an attempt that is followed no more, and whose end nobody has read."""
        if self.why is not None and self._never_started():
            return self.why
        return self._fault if self._fault is not None and not self._detaching else WorkerStopping()

    def _never_started(self) -> bool:
        """Whether the host has not heard of this attempt: there is nothing to be ended."""
        return self._claim.open is None and self._follower is not None and not self._follower.asked

    def _pass_on(self) -> None:
        """Tell the follower what was asked; calls into it are bounded."""
        if self._follower is None:
            return
        if self._detaching or (self.why is not None and self._never_started()):
            self._start(self._follower.detach)
        elif self.why is not None:
            self._start(self._cancel)

    async def _cancel(self) -> None:
        """Have the agent ended; one that can be talked to is told before it is signalled."""
        assert self._follower is not None  # noqa: S101 - it is followed
        if self._live is not None and self._follower.attached:
            await self._live.interrupt()
        await self._follower.cancel()

    async def _check_limits(self) -> None:
        # Most of the time nothing happens; that is what is looked for. Of an agent that is to end, nothing is.
        looked_at = self._clock()
        while self.why is None:
            reached = self._watch.exceeded(looked_at)
            if reached is not None:
                self.stop(reached)
                return
            self._ask_to_end(self._watch.ending(looked_at))
            await self._sleep(_CHECK_S)
            now = self._clock()
            if now - looked_at > _FROZEN_S or self._silence_is_ours:
                self._watch.woken(now)
            looked_at = now

    @property
    def _silence_is_ours(self) -> bool:
        """Whether the silence is not the agent's: its host is cut off, or it waits for its producer's answer."""
        cut_off = self._follower is not None and not self._follower.attached
        return cut_off or (self._live is not None and self._live.waits_for_us)

    def _ask_to_end(self, why: SoftStop | None) -> None:
        """Have the agent end by itself; it may have been asked before us."""
        if why is not None and self._soft_stop is None:
            self._soft_stop = why
            self._start(self._soften)

    async def _soften(self) -> None:
        assert self._soft_stop is not None  # noqa: S101 - it is asked for that
        try:
            text = self._adapter.soft_stop(self._soft_stop.reason)
            if text is not None and self._follower is not None:
                await self._follower.soft_stop(text)
        except Exception:
            log.exception("an agent could not be asked to end by itself; it is ended when its time for that is up")

    def _start(self, work: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        task = asyncio.create_task(self._see_to(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _see_to(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do it. If that fails, whoever follows the attempt is to leave it."""
        try:
            await work()
        except Exception as fault:
            log.exception("an attempt's end could not be seen to")
            self._fault = self._fault or fault
            if self._follower is not None:
                await self._follower.detach()
