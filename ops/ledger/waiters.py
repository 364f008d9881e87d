"""Who is to be told of a turn's result: the same turn may be queued several times, under several task ids.

A row goes once its task was told, so there are only those of turns that have not ended, and of the last moment.
"""

from __future__ import annotations

from collections.abc import Collection

import sqlalchemy as sa
from sqlalchemy import Connection

from ops.ledger.database import upsert
from ops.ledger.schema import turns, waiters


def add(
    connection: Connection, turn_id: str, task_id: str, settled_at: float | None, message: str | None = None
) -> bool:
    """Remember a task; False: it was known, with its message. `settled_at` is its turn's, if that has ended."""
    new = upsert(connection, waiters).values(
        turn_id=turn_id, task_id=task_id, settled_at=settled_at, message=message
    )
    noted = new.on_conflict_do_update(
        index_elements=[waiters.c.turn_id, waiters.c.task_id],
        set_={"message": new.excluded.message},
        where=waiters.c.message.is_(None) & new.excluded.message.is_not(None),
    )
    return connection.execute(noted, execution_options={"preserve_rowcount": True}).rowcount == 1


def of(connection: Connection, turn_id: str) -> frozenset[str]:
    """The tasks that wait for a turn."""
    query = sa.select(waiters.c.task_id).where(waiters.c.turn_id == turn_id)
    return frozenset(connection.scalars(query))


def messages(connection: Connection, turn_id: str) -> dict[str, str | None]:
    """What is kept of the messages of the tasks that wait for a turn, by task."""
    query = sa.select(waiters.c.task_id, waiters.c.message).where(waiters.c.turn_id == turn_id)
    return {row.task_id: row.message for row in connection.execute(query.order_by(waiters.c.task_id))}


def stamped_messages(connection: Connection) -> dict[str, str]:
    """The messages with stamps of tasks whose turns have not ended: all are read, for a rare command."""
    stamped = waiters.c.message.contains('"stamps":{"', autoescape=True)
    query = sa.select(waiters.c.task_id, waiters.c.message).where(waiters.c.settled_at.is_(None), stamped)
    return {row.task_id: row.message for row in connection.execute(query)}


def told(connection: Connection, turn_id: str, task_id: str, message: str | None) -> None:
    """Forget a task that knows the result, and whose message is still that one."""
    same = waiters.c.message.is_not_distinct_from(message)
    done = sa.and_(waiters.c.turn_id == turn_id, waiters.c.task_id == task_id, same)
    connection.execute(waiters.delete().where(done))


def settled(connection: Connection, turn_id: str, at: float) -> None:
    """Note that a turn has ended: from now on, its tasks can be told."""
    connection.execute(waiters.update().where(waiters.c.turn_id == turn_id).values(settled_at=at))


def unanswered(connection: Connection, settled_before: float, now: float, limit: int) -> list[str]:
    """Turns that were settled before then, and for which tasks still wait that nobody is about to tell."""
    query = (
        sa.select(waiters.c.turn_id, waiters.c.settled_at)
        .distinct()
        .where(waiters.c.settled_at <= settled_before, _free(now))
        .order_by(waiters.c.settled_at, waiters.c.turn_id)
        .limit(limit)
    )
    return list(connection.scalars(query))


def lease(connection: Connection, turn_ids: Collection[str], now: float, until: float) -> frozenset[str]:
    """Be alone with the tasks of these turns until then; returns the turns of which there are any."""
    change = waiters.update().where(waiters.c.turn_id.in_(turn_ids), _free(now)).values(leased_until=until)
    return frozenset(connection.scalars(change.returning(waiters.c.turn_id)))


def _free(now: float) -> sa.ColumnElement[bool]:
    return sa.or_(waiters.c.leased_until.is_(None), waiters.c.leased_until <= now)


def turn_of(connection: Connection, task_id: str) -> str | None:
    """The turn, or session of turns, that a task waits for; the oldest turn, should there be several."""
    query = (
        sa.select(waiters.c.turn_id)
        .outerjoin(turns, waiters.c.turn_id == turns.c.turn_id)
        .where(waiters.c.task_id == task_id)
        .order_by(turns.c.created_at)
        .limit(1)
    )
    return connection.scalar(query)
