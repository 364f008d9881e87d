"""Keeps hosts free of what turns leave behind when their workers are killed or their hosts are out of reach.

Every worker looks after all hosts, each in its own time, so that none delays another one. Any worker finds what
others have left, and nothing is lost by finding it late: so a fleet does not ask its hosts over SSH every few
minutes, but each worker about once an hour. Sooner it asks only a host that it has seen out of reach: there may be
usage that is not in the books.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from ops.errors import LedgerError
from ops.ledger import SpoolRow
from remote.errors import HostError, HostUnreachable, SpawnRefused
from remote.host_queries import SpoolState, list_spools, remove_drafts, remove_spool
from workers.context import WorkerContext
from workers.hosts.inventory import TurnHost
from workers.maintenance.late_usage import book_late_usage
from workers.maintenance.workspaces import tidy_workspaces

_SOON_S = 300.0
_LATER_S = 3600.0
_LOOK_S = 30.0  # between two looks whether a host is out of reach, which ask nobody
_VISIT_S = 900.0  # for one visit; the next one goes on
_READ_S = 300.0  # for the late usage of one spool

Sleep = Callable[[float], Awaitable[None]]

log = structlog.get_logger(__name__)


async def keep_tidy(context: WorkerContext, sleep: Sleep = asyncio.sleep) -> None:
    """Tidy all hosts now and then, until cancelled."""
    await asyncio.gather(*(_keep_tidy(context, host, sleep) for host in context.hosts))


async def _keep_tidy(context: WorkerContext, host: TurnHost, sleep: Sleep) -> None:
    remote = host.launcher == "ssh"
    if remote:  # the workers of a fleet may all have been started at once
        await sleep(context.rng.uniform(0.0, _SOON_S))
    while True:
        done = await _visit(context, host)
        pause_s = _LATER_S if done and remote else _SOON_S
        await _pause(context, host, pause_s * context.rng.uniform(0.5, 1.5), sleep)


async def _pause(context: WorkerContext, host: TurnHost, seconds: float, sleep: Sleep) -> None:
    """Wait so long, or less if the host is out of reach meanwhile."""
    until = context.monotonic() + seconds
    while (left_s := until - context.monotonic()) > 0:
        await sleep(min(left_s, _LOOK_S))
        if host.host.rest_s > 0:
            until = min(until, context.monotonic() + _SOON_S)


async def _visit(context: WorkerContext, host: TurnHost) -> bool:
    """Tidy a host, unless it is better left alone. False: another visit may soon do better."""
    if host.host.rest_s > 0:
        return False
    try:
        async with asyncio.timeout(_VISIT_S):
            await tidy(context, host)
    except (HostError, LedgerError, TimeoutError) as error:
        log.warning("a host was not tidied up", host=host.name, error=_text(error))
        # A refused login and a wrong key stay as they are until somebody has seen to them.
        return isinstance(error, HostError) and not isinstance(error, HostUnreachable)
    except Exception:
        log.exception("tidying up failed", host=host.name)
    return True


async def tidy(context: WorkerContext, host: TurnHost) -> None:
    """Remove from a host what nobody needs any more, after booking what only its spools know.

    Raises HostError, LedgerError.
    """
    found = await list_spools(host.host, host.spool_root)
    context.rng.shuffle(found)  # a spool whose reading loses the host must not shield the same others every time
    rows = await asyncio.to_thread(context.ledger.accounting.by_spool, [state.id for state in found])
    for state in found:
        if await _needless(context, host, state, rows.get(state.id)):
            await _remove(host, state)
    await remove_drafts(host.host, host.spool_root, round(_retention_s(context)))
    await tidy_workspaces(context, host)


async def _needless(context: WorkerContext, host: TurnHost, state: SpoolState, row: SpoolRow | None) -> bool:
    """Whether a spool can go. Raises HostUnreachable, LedgerError."""
    if state.alive and not state.ended:
        if row is not None and row.host == host.name:
            await _look_for_another(context, host, row)
        return False  # its worker may be out; then its lease ends it
    if row is None or row.host != host.name:
        # Of another installation, or of another host that shares the directory. They read it, if anybody does.
        return state.age_s is not None and state.age_s > _retention_s(context)
    if row.ended_at is None:
        return False  # whoever owns the turn has yet to read it
    return row.usage_observed or await _all_is_booked(context, host, state, row)


async def _look_for_another(context: WorkerContext, host: TurnHost, row: SpoolRow) -> None:
    """Raise the alarm if an agent runs for an attempt after which another one was begun. It must never be."""
    if row.ended_at is None:
        return
    turn = await asyncio.to_thread(context.ledger.reports.turn, row.turn_id)
    if turn.attempts > row.attempt:
        context.metrics.ran_twice()
        log.error("a turn runs twice", turn_id=row.turn_id, attempt=row.attempt, host=host.name)


async def _all_is_booked(context: WorkerContext, host: TurnHost, state: SpoolState, row: SpoolRow) -> bool:
    """Read the late usage of an attempt. False: it could not be read, and is worth another try."""
    try:
        async with asyncio.timeout(_READ_S):
            await book_late_usage(context, host, state.id, row)
    except (HostUnreachable, LedgerError):
        raise
    except Exception as error:  # whatever it is, it must not hold up the other spools
        if isinstance(error, SpawnRefused) and error.code == "spool_missing":
            return True  # another worker was faster
        log.warning("late usage cannot be read", host=host.name, spool=state.id, error=_text(error))
        return context.clock() - (row.ended_at or 0.0) > _retention_s(context)
    return True


async def _remove(host: TurnHost, state: SpoolState) -> None:
    try:
        await remove_spool(host.host, host.spool(state.id))
    except SpawnRefused as refusal:
        log.warning("a spool stays", spool=state.id, error=str(refusal))


def _retention_s(context: WorkerContext) -> float:
    return context.settings.agent.spool_retention_ms / 1000


def _text(error: Exception) -> str:
    return str(error) or "it took too long"
