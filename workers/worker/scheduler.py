"""Takes turns from the ledger whenever this worker has room for them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Protocol

import structlog

from ops.errors import LedgerUnavailable
from ops.ledger import Claim
from ops.ledger.queue.requirements import NOWHERE
from workers.context import WorkerContext
from workers.turn.leases import OWNER_TTL_S
from workers.worker.eligibility import Eligibility

_POLL_S = 1.0  # between checks for due turns and for slots freed by other workers
_AT_ONCE = 50  # turns per transaction
_BEGINNING_S = 2.0  # for claimed turns to take their slots

log = structlog.get_logger(__name__)


class Starter(Protocol):
    """The runner of claimed turns."""

    def room(self) -> int:
        """Return how many more turns this worker may run."""
        ...

    def start(self, claim: Claim, asked_at: float) -> asyncio.Event:
        """Run a turn; return an event set once it has taken its slot or needs none. `asked_at` is monotonic."""
        ...


class Scheduler:
    """The loop that takes turns."""

    def __init__(self, context: WorkerContext, owner: str, starter: Starter) -> None:
        self._context = context
        self._owner = owner
        self._starter = starter
        self._nudged = asyncio.Event()
        self._leaving = False
        self._looked_at = -_POLL_S  # on the monotonic clock

    @property
    def leaving(self) -> bool:
        """Return whether the scheduler has stopped taking turns."""
        return self._leaving

    def nudge(self) -> None:
        """Check at once for turns to take."""
        self._nudged.set()

    def leave(self) -> None:
        """Take no more turns. Those being taken now still start, so that they are released in order."""
        self._leaving = True
        self._nudged.set()

    async def run(self) -> None:
        """Take turns until `leave` is called."""
        while not self._leaving:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._nudged.wait(), _POLL_S)
            self._nudged.clear()
            try:
                while not self._leaving and await self._take(min(self._starter.room(), _AT_ONCE)):
                    pass
                await self._end_cancelled()
            except LedgerUnavailable as error:
                log.warning("no turns can be taken", error=str(error))
                await asyncio.sleep(_POLL_S)
            except Exception:
                log.exception("taking turns failed")  # without this loop, the worker would never take a turn again
                await asyncio.sleep(_POLL_S)

    async def _take(self, limit: int) -> bool:
        """Take up to `limit` turns; return whether there may be more."""
        context = self._context
        if limit <= 0:
            return False
        taken = await asyncio.to_thread(context.ledger.hosts.open_attempts)
        vacancies = Eligibility(context.hosts, taken, context.ledger.hosts.known, context.clock())
        return await self._claim(vacancies.admit, limit) == limit

    async def _end_cancelled(self) -> None:
        """Without room, take only turns that were cancelled while waiting: they finish at once."""
        now = self._context.monotonic()
        if not self._leaving and self._starter.room() <= 0 and now - self._looked_at >= _POLL_S:
            self._looked_at = now
            await self._claim(lambda place: place == NOWHERE, _AT_ONCE)

    async def _claim(self, admits: Callable[[str], bool], limit: int) -> int:
        context = self._context
        queue, clock = context.ledger.queue, context.ledger.clock
        if not clock.settled:
            return 0
        asked_at, now = context.monotonic(), context.clock()
        claims = await asyncio.to_thread(queue.take, self._owner, admits, now, OWNER_TTL_S, limit, clock.trusted)
        beginning = [asyncio.create_task(self._starter.start(claim, asked_at).wait()) for claim in claims]
        if beginning:
            # The next check must see their slots taken.
            await asyncio.wait(beginning, timeout=_BEGINNING_S)
            for waiting in beginning:
                waiting.cancel()
        return len(claims)
