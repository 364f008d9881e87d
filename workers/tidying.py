"""Removes spools that were left behind: a worker was killed between the end of an attempt and its clean-up."""

from __future__ import annotations

import asyncio

import structlog

from remote.host import Host
from remote.spool import Spool
from remote.upkeep import SpoolState, list_spools, remove_spool
from workers.equipment import Equipment
from workers.verdict import tolerant

_PERIOD_S = 300.0

log = structlog.get_logger(__name__)


async def keep_tidy(equipment: Equipment) -> None:
    """Tidy all hosts now and then, until cancelled."""
    while True:
        for host in equipment.hosts:
            try:
                await tidy(equipment, host)
            except Exception:
                log.exception("tidying up failed", host=host.name)
        await asyncio.sleep(_PERIOD_S)


async def tidy(equipment: Equipment, host: Host) -> None:
    """Remove the spools on a host whose attempts are booked. Raises LedgerError."""
    for state in await tolerant(list_spools(host, equipment.spool_root), []):
        over = state.ended or not state.alive
        if over and await asyncio.to_thread(_booked, equipment, state):
            await tolerant(remove_spool(host, Spool(equipment.spool_root, state.id)), None)


def _booked(equipment: Equipment, state: SpoolState) -> bool:
    """Whether nobody needs the spool any more. An open attempt is still to be read from it."""
    turn_id, _, number = state.id.rpartition(".")
    return number.isdigit() and int(number) in equipment.ledger.usage_of(turn_id)
