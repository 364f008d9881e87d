"""Removes workspaces from hosts when no turn needs them any more."""

from __future__ import annotations

import asyncio

import structlog

from remote.workspaces import MadeState, list_workspaces, remove_workspace
from workers.context import WorkerContext
from workers.hosts.errors import tolerant
from workers.hosts.inventory import TurnHost

log = structlog.get_logger(__name__)


async def tidy_workspaces(context: WorkerContext, host: TurnHost) -> None:
    """Remove turns' own workspaces that no turn needs any more. Raises HostError, LedgerError."""
    for state in await list_workspaces(host.host, host.made("").root):
        if await asyncio.to_thread(_needless, context, state):
            await tolerant(remove_workspace(host.host, host.made(state.id)), None)
            log.info("leftover workspace removed", turn_id=state.id, host=host.name)


def _needless(context: WorkerContext, state: MadeState) -> bool:
    """Return whether no turn needs the workspace. Raises LedgerError."""
    settings, now = context.settings, context.clock()
    row = context.ledger.workspaces.made(state.id)
    if row is None:  # of another installation that shares the directory
        return state.age_s is not None and state.age_s > settings.agent.spool_retention_ms / 1000
    if row.settled_at is None or not row.kept or row.path is None:
        return row.settled_at is not None
    kept_since = now - settings.workspaces_retention_ms / 1000
    if row.settled_at >= kept_since:
        return False
    used_at = context.ledger.workspaces.used_at(row.path)
    return used_at is not None and used_at < kept_since
