"""Has the ledger forget what is old enough, about once an hour; any worker's turn does it for the whole fleet."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import structlog

from ops.errors import LedgerUnavailable
from ops.ledger import Forgotten
from workers.context import WorkerContext

_PERIOD_S = 3600.0
_PAUSE_S = 0.1  # between two transactions: others want to write, too

Sleep = Callable[[float], Awaitable[None]]

log = structlog.get_logger(__name__)


async def keep_forgetting(context: WorkerContext, sleep: Sleep = asyncio.sleep) -> None:
    """Forget now and then, until cancelled."""
    while True:
        # The workers of a fleet may all have been started at once.
        await sleep(_PERIOD_S * context.rng.uniform(0.5, 1.5))
        try:
            await forget_old(context, sleep)
        except LedgerUnavailable as error:
            log.warning("old turns are forgotten later", error=str(error))
        except Exception:
            log.exception("old turns could not be forgotten")  # the next time, it may go well


async def forget_old(context: WorkerContext, sleep: Sleep = asyncio.sleep) -> None:
    """Forget everything that is old enough now. Raises LedgerUnavailable."""
    settings, now = context.settings, context.clock()
    details_before = now - settings.events_retention_ms / 1000
    turns_before = now - settings.turns_retention_ms / 1000
    total = Forgotten()
    forget = partial(context.ledger.retention.forget, archiving=context.archive is not None)
    while forgotten := await asyncio.to_thread(forget, details_before, turns_before):
        total += forgotten
        await sleep(_PAUSE_S)
    if total:
        log.info("old turns are forgotten", details=total.details, turns=total.turns, sessions=total.sessions)
