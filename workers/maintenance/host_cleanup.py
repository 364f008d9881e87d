"""Removes what turns leave behind on hosts when their workers are killed or their hosts are unreachable.

Every worker visits all hosts, each on its own schedule, so that none delays another. Any worker finds what others
left, and nothing is lost by finding it late, so each worker visits an SSH host about once an hour rather than
every few minutes. It visits sooner only a host that it has seen unreachable, where there may be usage that is not
in the ledger.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from ops.errors import LedgerError
from ops.ledger import SpoolRow
from remote.errors import HostError, HostUnreachable, SpawnRefused
from remote.host_queries import SpoolState, list_spools, remove_drafts, remove_spool
from remote.spool import Spool
from remote.workspaces import MadeState, list_workspaces, remove_workspace
from workers.context import WorkerContext
from workers.hosts.errors import tolerant
from workers.hosts.inventory import TurnHost
from workers.maintenance.late_usage import book_late_usage

_SOON_S = 300.0
_LATER_S = 3600.0
_LOOK_S = 30.0  # between checks whether a host is unreachable, which send nothing
_VISIT_S = 900.0  # for one visit; the next one continues
_READ_S = 300.0  # for the late usage of one spool

Sleep = Callable[[float], Awaitable[None]]

log = structlog.get_logger(__name__)


async def keep_tidy(context: WorkerContext, sleep: Sleep = asyncio.sleep) -> None:
    """Clean up all hosts periodically, until cancelled."""
    await asyncio.gather(*(_keep_tidy(context, host, sleep) for host in context.hosts))


async def _keep_tidy(context: WorkerContext, host: TurnHost, sleep: Sleep) -> None:
    remote = host.launcher == "ssh"
    if remote:  # all workers of a fleet may have been started at once
        await sleep(context.rng.uniform(0.0, _SOON_S))
    while True:
        done = await _visit(context, host)
        pause_s = _LATER_S if done and remote else _SOON_S
        await _pause(context, host, pause_s * context.rng.uniform(0.5, 1.5), sleep)


async def _pause(context: WorkerContext, host: TurnHost, seconds: float, sleep: Sleep) -> None:
    """Wait, but not as long if the host becomes unreachable."""
    until = context.monotonic() + seconds
    while (left_s := until - context.monotonic()) > 0:
        await sleep(min(left_s, _LOOK_S))
        if host.host.rest_s > 0:
            until = min(until, context.monotonic() + _SOON_S)


async def _visit(context: WorkerContext, host: TurnHost) -> bool:
    """Clean up a host, unless it keeps failing. Return False if another visit may soon do better."""
    if host.host.rest_s > 0:
        return False
    try:
        async with asyncio.timeout(_VISIT_S):
            await tidy(context, host)
    except (HostError, LedgerError, TimeoutError) as error:
        log.warning("host cleanup not finished", host=host.name, error=_text(error))
        # A refused login or a wrong key needs an operator.
        return isinstance(error, HostError) and not isinstance(error, HostUnreachable)
    except Exception:
        log.exception("host cleanup failed", host=host.name)
    return True


async def tidy(context: WorkerContext, host: TurnHost) -> None:
    """Remove from a host what is no longer needed, after booking usage that only its spools contain.

    Raises HostError, LedgerError.
    """
    found = await list_spools(host.host, host.spool_root)
    context.rng.shuffle(found)  # a spool that breaks the connection must not block the same others every time
    rows = await asyncio.to_thread(context.ledger.accounting.by_spool, [state.id for state in found])
    for state in found:
        row = rows.get(state.id)
        if await _needless(context, host, state, row):
            # Another installation's end cannot be proved by us.
            await _remove(host, host.spool(state.id, row.seal if row and row.host == host.name else ""))
    await remove_drafts(host.host, host.spool_root, round(_retention_s(context)))
    await _tidy_workspaces(context, host)


async def _needless(context: WorkerContext, host: TurnHost, state: SpoolState, row: SpoolRow | None) -> bool:
    """Return whether a spool can be removed. Raises HostUnreachable, LedgerError."""
    if state.alive:
        if row is not None and row.host == host.name:
            await _look_for_another(context, host, row)
        return False  # if its worker is dead, its lease ends it
    if row is None or row.host != host.name:
        # Of another installation, or of another host that shares the directory: reading it is up to them.
        return state.age_s is not None and state.age_s > _retention_s(context)
    if row.ended_at is None:
        return False  # the owner of the turn must still read it
    return row.usage_observed or await _all_is_booked(context, host, state, row)


async def _look_for_another(context: WorkerContext, host: TurnHost, row: SpoolRow) -> None:
    """Raise the alarm if an agent runs for an attempt that is not the last. This must never happen."""
    if row.ended_at is None:
        return
    turn = await asyncio.to_thread(context.ledger.reports.turn, row.turn_id)
    if turn.attempts > row.attempt:
        context.metrics.ran_twice()
        log.error("turn is running twice", turn_id=row.turn_id, attempt=row.attempt, host=host.name)


async def _all_is_booked(context: WorkerContext, host: TurnHost, state: SpoolState, row: SpoolRow) -> bool:
    """Book the late usage of an attempt. Return False if it could not be read and is worth another try."""
    try:
        async with asyncio.timeout(_READ_S):
            await book_late_usage(context, host, state.id, row)
    except (HostUnreachable, LedgerError):
        raise
    except Exception as error:  # must not hold up the other spools
        if isinstance(error, SpawnRefused) and error.code == "spool_missing":
            return True  # another worker was faster
        log.warning("cannot read late usage", host=host.name, spool=state.id, error=_text(error))
        return context.clock() - (row.ended_at or 0.0) > _retention_s(context)
    return True


async def _remove(host: TurnHost, spool: Spool) -> None:
    try:
        await remove_spool(host.host, spool)
    except SpawnRefused as refusal:
        log.warning("cannot remove a spool", spool=spool.id, error=str(refusal))


async def _tidy_workspaces(context: WorkerContext, host: TurnHost) -> None:
    """Remove turns' own workspaces that no turn needs any more. Raises HostError, LedgerError."""
    for state in await list_workspaces(host.host, host.made("").root):
        if await asyncio.to_thread(_is_needless, context, state):
            await tolerant(remove_workspace(host.host, host.made(state.id)), None)
            log.info("leftover workspace removed", turn_id=state.id, host=host.name)


def _is_needless(context: WorkerContext, state: MadeState) -> bool:
    """Return whether no turn needs the workspace. Raises LedgerError."""
    settings, now = context.settings, context.clock()
    row = context.ledger.workspaces.made(state.id)
    if row is None:  # of another installation that shares the directory
        return state.age_s is not None and state.age_s > _retention_s(context)
    if row.settled_at is None or not row.kept or row.path is None:
        return row.settled_at is not None
    kept_since = now - settings.workspaces_retention_ms / 1000
    if row.settled_at >= kept_since:
        return False
    used_at = context.ledger.workspaces.used_at(row.path)
    return used_at is not None and used_at < kept_since


def _retention_s(context: WorkerContext) -> float:
    return context.settings.agent.spool_retention_ms / 1000


def _text(error: Exception) -> str:
    return str(error) or "timed out"
