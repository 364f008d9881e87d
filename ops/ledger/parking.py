"""Turns that wait for something, and how they come back."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy import ColumnElement, Connection

from ops.ledger import reach
from ops.ledger.books import book
from ops.ledger.records import AttemptEnd, Claim, Due, State
from ops.ledger.schema import turns
from ops.ledger.turn_rows import change, held

# A worker whose clock is behind may take the new message for too early a one, and drop it, before `requeued` is
# written; or the broker may lose it. So it is sent again if nobody claims the turn; claims make copies harmless.
RESEND_S = 300.0


def wait(
    connection: Connection,
    claim: Claim,
    due_at: float,
    reason: str,
    now: float,
    ended: AttemptEnd | None,
    *,
    unreachable_since: float | None,
    host: str | None,
) -> None:
    """Park a turn that the caller holds. If somebody wants it cancelled, it is due at once."""
    row = held(connection, claim)
    if ended is not None:
        book(connection, claim.turn_id, row["agent"], ended, now)
    if unreachable_since is not None:
        reach.lost(connection, claim.turn_id, unreachable_since)
    change(
        connection, claim.turn_id, state=State.WAITING, owner=None, owner_expires=None,
        due_at=now if row["cancel_requested"] else due_at,
        # not the turn's host: that is the last attempt's, and the next one may be free to go elsewhere
        wait_reason=reason, wait_host=host or claim.request.host,
    )  # fmt: skip


def due(connection: Connection, now: float, limit: int) -> list[Due]:
    """Turns that need a message, the longest overdue first."""
    since = sa.func.coalesce(turns.c.due_at, turns.c.owner_expires)
    query = sa.select(turns.c.turn_id, turns.c.epoch).where(_overdue(now)).order_by(since).limit(limit)
    return [Due(turn_id, epoch) for turn_id, epoch in connection.execute(query)]


def requeued(connection: Connection, due: Due, now: float) -> None:
    """Note that a message for the turn was sent, if nobody claimed it or showed a sign of life meanwhile."""
    unclaimed = sa.and_(turns.c.turn_id == due.turn_id, turns.c.epoch == due.epoch, _overdue(now))
    connection.execute(
        turns.update().where(unclaimed).values(
            state=State.QUEUED, owner=None, owner_expires=None, due_at=now + RESEND_S,
            wait_reason=None, wait_host=None,
        )
    )  # fmt: skip


def postpone(connection: Connection, turn_id: str, now: float) -> None:
    """Bring a queued turn back whose message is gone; any other one comes back anyway."""
    without = sa.and_(turns.c.turn_id == turn_id, turns.c.state == State.QUEUED, turns.c.due_at.is_(None))
    connection.execute(turns.update().where(without).values(due_at=now + RESEND_S))


def _overdue(now: float) -> ColumnElement[bool]:
    parked = sa.and_(turns.c.state.in_((State.WAITING, State.QUEUED)), turns.c.due_at <= now)
    # A released turn keeps the end of its lease: till then, the message that its owner gave back should arrive.
    orphaned = sa.and_(turns.c.state == State.RUNNING, turns.c.owner_expires <= now)
    return sa.or_(parked, orphaned)
