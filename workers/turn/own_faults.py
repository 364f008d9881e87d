"""Faults of runturn's own: they set a turn aside a few times, and then give it up."""

from __future__ import annotations

import asyncio
from functools import partial

import structlog

from adapters import errors
from adapters.protocol.result import TurnResult
from ops.errors import StaleClaim
from ops.ledger import Attempt, Claim
from remote.errors import SpawnRefused
from remote.host_queries import end_processes
from workers.context import WorkerContext
from workers.ledger_calls import WorkerStopping
from workers.turn.host_failures import FAULT_PAUSE_S
from workers.turn.settlement import Parked, Settlement

_MOST_FAULTS = 5  # in a row, before the turn is given up
_MOST_DOUBLINGS = 7  # of the pause, up to about an hour, for a turn that cannot be given up either

log = structlog.get_logger(__name__)


class OwnFaults:
    """Our faults in running one claim."""

    def __init__(self, context: WorkerContext, claim: Claim, conclusion: Settlement) -> None:
        self._context = context
        self._claim = claim
        self._conclusion = conclusion

    async def dealt_with(self, attempt: Attempt | None) -> TurnResult | Parked:
        """Park the turn for another worker to attach to its agent again; settle it if that has not helped.

        Raises WorkerStopping, StaleClaim, and LedgerUnavailable.
        """
        if self._claim.faults + 1 < _MOST_FAULTS:
            return await self._set_aside()
        try:
            return await self._give_up(attempt)
        except (WorkerStopping, StaleClaim):
            raise
        except Exception:
            log.exception("giving up a turn failed")
            return await self._set_aside()

    async def _give_up(self, attempt: Attempt | None) -> TurnResult | Parked:
        fault = errors.InternalError(f"running the turn failed {_MOST_FAULTS} times; see the workers' logs")
        if attempt is None:
            return await self._conclusion.of_turn(fault)
        await self._end(attempt)
        return await self._conclusion.of_unread(attempt, fault)

    async def _end(self, attempt: Attempt) -> None:
        """Terminate the agent, which nobody is going to follow; if this fails as well, its lease ends it."""
        try:
            host = self._context.hosts.get(attempt.host)
            await end_processes(host.host, host.spool(attempt.spool_id))
        except SpawnRefused as refusal:
            if refusal.code != "spool_exists":
                log.warning("an agent could not be terminated; its lease ends it", error=str(refusal))
        except Exception:
            log.exception("an agent could not be terminated; its lease ends it")

    async def _set_aside(self) -> Parked:
        now, faults = self._context.clock(), self._claim.faults + 1
        due_at = now + FAULT_PAUSE_S * 2 ** max(0, min(faults - _MOST_FAULTS, _MOST_DOUBLINGS))
        kind = errors.InternalError.kind
        wait = partial(self._context.ledger.queue.wait, self._claim, due_at, kind, now, faults=faults)
        await asyncio.to_thread(wait)
        return Parked(f"{kind}: see the worker's log", due_at)
