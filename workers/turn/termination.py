"""Termination of one attempt by its worker: for a limit, for a producer, or for the next worker.

A failure here is a fault of ours. An agent must not keep running without limits because of one, so the attempt is
left as if its reader had failed: its turn is set aside, and the next worker checks the limits again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import structlog

from adapters.contract import Adapter
from adapters.errors import TurnCancelled, TurnError
from ops.ledger import Attempt, Claim
from remote.errors import HostError
from remote.follower import Follower
from remote.spool import Exit
from workers.ledger_calls import WorkerStopping
from workers.limits import LimitWatch, Moment, SoftStop
from workers.live.conversation import LiveTurn

_CHECK_S = 0.5  # between limit checks, and while an agent is to end
_FROZEN_S = 5.0  # a longer gap between checks means that this process or its machine was suspended

log = structlog.get_logger(__name__)


class NotEnded(HostError):
    """The host was asked to terminate the agent, for the reason `why`, and did not report its end in time."""

    def __init__(self, host: str, why: TurnError, within_s: float) -> None:
        said = f"it did not report the agent's end within {within_s:.0f} s of being asked to terminate it"
        super().__init__(host, said)
        self.why = why


class Termination:
    """Terminates one attempt, on the loop that follows it. `stop` and `detach` may be called at any time."""

    def __init__(
        self,
        claim: Claim,
        attempt: Attempt,
        adapter: Adapter,
        watch: LimitWatch,
        clock: Callable[[], Moment],
        stop_s: float,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`watch` must be updated elsewhere with what the agent does and spends.

        `stop_s` is how long the host may take to terminate the agent. Whatever happens there, an attempt that must
        end is not followed for longer.
        """
        self.why: TurnError | None = None  # why the agent must end; None: it need not
        self._claim = claim
        self._attempt = attempt
        self._adapter = adapter
        self._watch = watch
        self._clock = clock
        self._stop_s = stop_s
        self._until_left: list[asyncio.Task[None]] = []
        self._sleep = sleep
        self._follower: Follower | None = None
        self._live: LiveTurn | None = None
        self._soft_stop: SoftStop | None = None
        self._detaching = False
        self._overdue: NotEnded | None = None
        self._fault: Exception | None = None
        self._tasks: set[asyncio.Task[None]] = set()  # keeps the only references to them

    def stop(self, why: TurnError) -> None:
        """Terminate the agent; the first reason stands."""
        if self.why is None:
            self.why = why
            self._pass_on()

    def detach(self) -> None:
        """Leave the agent to the next worker."""
        self._detaching = True
        self._pass_on()

    @contextlib.asynccontextmanager
    async def seen_to(self, follower: Follower, live: LiveTurn | None) -> AsyncIterator[None]:
        """Apply earlier calls to `stop` and `detach`, and check the limits while the agent is followed."""
        self._follower, self._live = follower, live
        self._pass_on()
        self._until_left.append(self._start(self._check_limits))
        try:
            yield
        finally:
            for task in self._until_left:
                task.cancel()

    def refusal(self) -> str | None:
        """Return why the agent may use no more tools, in words for the agent; None: it may.

        This checks the limits, so an agent that is refused a tool has been asked to end.
        """
        now = self._clock()
        self._ask_to_end(self._watch.ending(now))
        if self._soft_stop is not None:
            return self._soft_stop.reason
        return self._watch.forbids(now) or (None if self.why is None else self.why.message)

    def of(self, end: Exit) -> TurnError | None:
        """Return why we or an earlier worker terminated the agent or asked it to end; None: it ended by itself."""
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
        """Return the exception to raise for an attempt that is no longer followed and whose end was not read."""
        if self.why is not None and self._never_started():
            return self.why
        if self._overdue is not None and not self._detaching:
            return self._overdue
        return self._fault if self._fault is not None and not self._detaching else WorkerStopping()

    def _never_started(self) -> bool:
        """Return whether the host never received this attempt: there is nothing to terminate."""
        return not self._attempt.start_sent and self._follower is not None and not self._follower.asked

    def _pass_on(self) -> None:
        """Pass `stop` and `detach` on to the follower; calls to it take limited time."""
        if self._follower is None:
            return
        if self._detaching or (self.why is not None and self._never_started()):
            self._start(self._follower.detach)
        elif self.why is not None:
            self._start(self._cancel)
            self._until_left.append(self._start(self._await_end))

    async def _cancel(self) -> None:
        """Terminate the agent; one that takes requests is interrupted before it is signalled."""
        assert self._follower is not None  # noqa: S101 - it is followed
        if self._live is not None and self._follower.attached:
            await self._live.interrupt()
        await self._follower.cancel()

    async def _await_end(self) -> None:
        """Detach from an agent whose end is overdue. Time without a channel to its host does not count."""
        follower = self._follower
        assert follower is not None and self.why is not None  # noqa: S101 - it is followed, and must end
        left_s = self._stop_s
        while left_s > 0:
            await self._sleep(_CHECK_S)
            if follower.attached:
                left_s -= _CHECK_S
        self._overdue = NotEnded(self._attempt.host, self.why, self._stop_s)
        self._start(follower.detach)  # on its own: this task is cancelled once nobody follows any more

    async def _check_limits(self) -> None:
        # Polls, because silence is a limit too. Once the agent must end, nothing is left to check.
        looked_at = self._clock()
        while self.why is None:
            reached = self._watch.exceeded(looked_at)
            if reached is not None:
                self.stop(reached)
                return
            self._ask_to_end(self._watch.ending(looked_at))
            await self._sleep(_CHECK_S)
            now = self._clock()
            if now.monotonic - looked_at.monotonic > _FROZEN_S or self._silence_is_ours:
                self._watch.woken(now)
            looked_at = now

    @property
    def _silence_is_ours(self) -> bool:
        """True if the silence is not the agent's: its host is cut off, or it waits for its producer's answer."""
        cut_off = self._follower is not None and not self._follower.attached
        return cut_off or (self._live is not None and self._live.waits_for_us)

    def _ask_to_end(self, why: SoftStop | None) -> None:
        """Ask the agent to end by itself; an earlier worker may have asked already."""
        if why is not None and self._soft_stop is None:
            self._soft_stop = why
            self._start(self._soften)

    async def _soften(self) -> None:
        assert self._soft_stop is not None  # noqa: S101 - set by the caller
        try:
            text = self._adapter.soft_stop(self._soft_stop.reason)
            if text is not None and self._follower is not None:
                await self._follower.soft_stop(text)
        except Exception:
            log.exception("could not ask an agent to finish on its own; it will be terminated when its time is up")

    def _start(self, work: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        task = asyncio.create_task(self._see_to(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _see_to(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do the work. If it fails, detach from the attempt."""
        try:
            await work()
        except Exception as fault:
            log.exception("terminating an attempt failed")
            self._fault = self._fault or fault
            if self._follower is not None:
                await self._follower.detach()
