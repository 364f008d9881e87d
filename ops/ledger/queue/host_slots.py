"""Slots of a host: how many agents may run there at once.

An open attempt takes a slot. The slot stays taken while its worker is dead, until the attempt's end is booked.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import Connection

from ops.ledger.schema import attempts

_POSTGRESQL_LOCK = 0x736C6F74  # "slot": any number not used elsewhere


@dataclass(frozen=True, slots=True)
class HostBusy:
    """All slots of the host are taken."""

    host: str
    open: int  # attempts there that have not ended


def refusal(connection: Connection, host: str, slots: int) -> HostBusy | None:
    """Return HostBusy if a host is full. If not, no other transaction takes its slots until this one ends."""
    _alone(connection, host)
    here = sa.and_(attempts.c.host == host, attempts.c.ended_at.is_(None))
    taken = int(connection.scalar(sa.select(sa.func.count()).select_from(attempts).where(here)) or 0)
    return HostBusy(host, taken) if taken >= slots else None


def _alone(connection: Connection, host: str) -> None:
    """Let one transaction at a time count a host's slots. SQLite has one writer at a time anyway."""
    if connection.dialect.name == "postgresql":
        # Hosts with the same number merely wait for each other.
        number = zlib.crc32(host.encode()) - 2**31  # into the signed range
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_POSTGRESQL_LOCK, number)))


def open_attempts(connection: Connection) -> dict[str, int]:
    """Return the number of slots taken, by host; hosts with none are left out."""
    query = sa.select(attempts.c.host, sa.func.count()).where(attempts.c.ended_at.is_(None))
    return {str(host): int(count) for host, count in connection.execute(query.group_by(attempts.c.host))}
