"""Deletes old records from the ledger about once an hour; a run by any worker covers the whole fleet."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import structlog

from ops.errors import LedgerUnavailable
from ops.ledger import Forgotten
from workers.context import WorkerContext

_PERIOD_S = 3600.0
_PAUSE_S = 0.1  # between transactions, so that others can write

Sleep = Callable[[float], Awaitable[None]]

log = structlog.get_logger(__name__)


async def keep_forgetting(context: WorkerContext, sleep: Sleep = asyncio.sleep) -> None:
    """Delete old records periodically, until cancelled."""
    while True:
        # All workers of a fleet may have been started at once.
        await sleep(_PERIOD_S * context.rng.uniform(0.5, 1.5))
        try:
            await forget_old(context, sleep)
        except LedgerUnavailable as error:
            log.warning("deleting old turns postponed", error=str(error))
        except Exception:
            log.exception("deleting old turns failed")  # the next time may succeed


async def forget_old(context: WorkerContext, sleep: Sleep = asyncio.sleep) -> None:
    """Delete all records that are past their retention. Raises LedgerUnavailable."""
    settings, now = context.settings, context.clock()
    details_before = now - settings.events_retention_ms / 1000
    turns_before = now - settings.turns_retention_ms / 1000
    total = Forgotten()
    forget = partial(context.ledger.retention.forget, archiving=context.archive is not None)
    while forgotten := await asyncio.to_thread(forget, details_before, turns_before):
        total += forgotten
        await sleep(_PAUSE_S)
    if total:
        log.info("old turns deleted", details=total.details, turns=total.turns, sessions=total.sessions)
