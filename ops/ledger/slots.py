"""The slots of a host: how many agents may run there at once.

An open attempt is a slot. It stays taken while its worker is dead, until somebody books the attempt's end.
"""

from __future__ import annotations

import zlib

import sqlalchemy as sa
from sqlalchemy import Connection

from ops.ledger.records import HostBusy, State
from ops.ledger.schema import attempts, turns
from ops.ledger.turn_rows import change

HOST_BUSY = "host_busy"  # why a turn is parked that waits for a slot

_POSTGRESQL_LOCK = 0x736C6F74  # "slot": any number does that nobody else uses


def refusal(connection: Connection, host: str, slots: int) -> HostBusy | None:
    """Whether a host is full. If it is not, nobody else takes its slots before this transaction ends."""
    _alone(connection, host)
    here = sa.and_(attempts.c.host == host, attempts.c.ended_at.is_(None))
    taken = int(connection.scalar(sa.select(sa.func.count()).select_from(attempts).where(here)) or 0)
    return HostBusy(host, taken) if taken >= slots else None


def _alone(connection: Connection, host: str) -> None:
    """Let one transaction after the other count a host's slots. SQLite has one writer at a time anyway."""
    if connection.dialect.name == "postgresql":
        # Hosts that share a number only wait for each other.
        number = zlib.crc32(host.encode()) - 2**31  # into the range of a signed one
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_POSTGRESQL_LOCK, number)))


def freed(connection: Connection, host: str, now: float) -> None:
    """One slot is free again: the oldest turn that waits for one and could use it is due at once.

    Turns that are locked are passed over: they are being claimed or cancelled, and the transaction at hand holds
    another turn, so waiting could be for ever. Turns that are due anyway need no slot spent on them.
    """
    waiting = sa.and_(turns.c.state == State.WAITING, turns.c.wait_reason == HOST_BUSY, turns.c.due_at > now)
    usable = sa.or_(turns.c.wait_host.is_(None), turns.c.wait_host == host)
    oldest = (
        sa.select(turns.c.turn_id)
        .where(waiting, usable)
        .order_by(turns.c.created_at, turns.c.turn_id)
        .limit(1)
        .with_for_update(key_share=True, skip_locked=True)
    )
    turn_id = connection.scalar(oldest)
    if turn_id is not None:
        change(connection, turn_id, due_at=now)
