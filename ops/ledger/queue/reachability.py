"""Reachability of the host of an open attempt."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy import Connection

from ops.ledger.models import Claim
from ops.ledger.rows import held
from ops.ledger.schema import attempts


def lost(connection: Connection, turn_id: str, since: float) -> None:
    """Record when a locked turn's host became unreachable, unless an earlier time is or no attempt is open."""
    reachable = sa.and_(
        attempts.c.turn_id == turn_id, attempts.c.ended_at.is_(None), attempts.c.unreachable_since.is_(None)
    )
    connection.execute(attempts.update().where(reachable).values(unreachable_since=since))


def reached(connection: Connection, claim: Claim) -> None:
    """Record that a worker has attached to the open attempt: its host is reachable. Raises StaleClaim.

    Killed before: until it attaches, the successor considers the host unreachable for longer than it was.
    """
    held(connection, claim)
    still_open = sa.and_(attempts.c.turn_id == claim.turn_id, attempts.c.ended_at.is_(None))
    connection.execute(attempts.update().where(still_open).values(unreachable_since=None))
