"""Which Celery tasks are to be told of a turn's end, and what is kept of each.

A turn may be asked for under several task ids, and under one id with different things to follow: a row each. It
goes once its task was told, so there are only those of turns that have not ended, and of the last moment.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable

import sqlalchemy as sa
from sqlalchemy import Connection, RowMapping

from ops.ledger.database import upsert
from ops.ledger.records import Waiter
from ops.ledger.schema import turns, waiters

LEASE_S = 15.0  # of whoever tells a task, who renews it: it is told by one worker at a time


def add(connection: Connection, waiter: Waiter, since: float | None = None) -> bool:
    """Remember a task; False: it was known, with its message. `since`: its turn has ended, so it can be told."""
    if waiter.follows:  # in place of what was noted before its message came
        unknown = sa.and_(_key(waiter.turn_id, waiter.task_id, ""), waiters.c.message.is_(None))
        connection.execute(waiters.delete().where(unknown))
    new = upsert(connection, waiters).values(
        turn_id=waiter.turn_id,
        task_id=waiter.task_id,
        follows=waiter.follows,
        settled_at=since,
        message=waiter.message,
    )
    noted = new.on_conflict_do_update(
        index_elements=[waiters.c.turn_id, waiters.c.task_id, waiters.c.follows],
        set_={"message": new.excluded.message},
        where=waiters.c.message.is_(None) & new.excluded.message.is_not(None),
    )
    return connection.execute(noted, execution_options={"preserve_rowcount": True}).rowcount == 1


def of(connection: Connection, turn_id: str) -> tuple[Waiter, ...]:
    """The tasks that wait for a turn."""
    query = sa.select(waiters).where(waiters.c.turn_id == turn_id).order_by(waiters.c.task_id, waiters.c.follows)
    return tuple(_waiter(row) for row in connection.execute(query).mappings())


def stamped_messages(connection: Connection) -> dict[str, str]:
    """The messages with stamps of tasks whose turns have not ended: all are read, for a rare command."""
    stamped = waiters.c.message.contains('"stamps":{"', autoescape=True)
    query = sa.select(waiters.c.task_id, waiters.c.message).where(waiters.c.settled_at.is_(None), stamped)
    return {row.task_id: row.message for row in connection.execute(query)}


def settled(connection: Connection, turn_id: str, at: float, executing: Waiter | None = None) -> None:
    """Note that a turn has ended: its tasks can be told. Whoever has ended it may be `executing` one of them."""
    until = None
    if executing is not None:
        until = sa.case((_key(turn_id, executing.task_id, executing.follows), at + LEASE_S))
    change = waiters.update().where(waiters.c.turn_id == turn_id)
    connection.execute(change.values(settled_at=at, leased_until=until))


def unanswered(connection: Connection, now: float, limit: int) -> list[str]:
    """Turns that have ended, and for which tasks still wait that nobody is telling."""
    query = (
        sa.select(waiters.c.turn_id, waiters.c.settled_at)
        .distinct()
        .where(waiters.c.settled_at <= now, _free(now))
        .order_by(waiters.c.settled_at, waiters.c.turn_id)
        .limit(limit)
    )
    return list(connection.scalars(query))


def lease(connection: Connection, waiter: Waiter, now: float) -> Waiter | None:
    """Be the only one to tell a task; returns it as it is now, None: somebody else tells it, or has."""
    change = waiters.update().where(_of(waiter), _free(now)).values(leased_until=now + LEASE_S)
    row = connection.execute(change.returning(*waiters.c)).mappings().first()
    return None if row is None else _waiter(row)


def renew(connection: Connection, held: Iterable[Waiter], now: float) -> None:
    """Go on being the only one to tell these tasks."""
    for waiter in held:
        connection.execute(waiters.update().where(_of(waiter)).values(leased_until=now + LEASE_S))


def put_off(connection: Connection, waiter: Waiter, until: float, sent: Collection[str]) -> None:
    """Have a task told again from then on, and remember what was sent of what follows on it."""
    known = json.dumps(sorted(sent)) if sent else None
    connection.execute(waiters.update().where(_of(waiter)).values(leased_until=until, sent=known))


def told(connection: Connection, waiter: Waiter) -> bool:
    """Forget a task that knows the result, and on which all follows that is to; returns whether others wait."""
    connection.execute(waiters.delete().where(_of(waiter)))
    others = sa.select(sa.exists().where(waiters.c.turn_id == waiter.turn_id))
    return bool(connection.scalar(others))


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


def _waiter(row: RowMapping) -> Waiter:
    sent = frozenset(json.loads(row["sent"] or "[]"))
    return Waiter(row["turn_id"], row["task_id"], row["follows"], row["message"], row["settled_at"], sent)


def _of(waiter: Waiter) -> sa.ColumnElement[bool]:
    return _key(waiter.turn_id, waiter.task_id, waiter.follows)


def _key(turn_id: str, task_id: str, follows: str) -> sa.ColumnElement[bool]:
    return sa.and_(waiters.c.turn_id == turn_id, waiters.c.task_id == task_id, waiters.c.follows == follows)


def _free(now: float) -> sa.ColumnElement[bool]:
    return sa.or_(waiters.c.leased_until.is_(None), waiters.c.leased_until <= now)
