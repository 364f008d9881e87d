"""Celery tasks waiting for a turn's result, and the part of each task's message that is kept.

A turn may be requested under several task ids, and under one id with different following tasks: one row each. A
row is removed once its task has the result, so only tasks of unsettled turns, and of those just settled, have one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, RowMapping

from ops.ledger.database import COUNTED, upsert
from ops.ledger.models import Waiter
from ops.ledger.schema import turns, waiters

LEASE_S = 15.0  # for reporting to a task, by one worker at a time; that worker renews it

# Built once, as in `rows`; parameters are not named like columns, see there.
_TURN = waiters.c.turn_id == sa.bindparam("of_turn")
_TASK = sa.and_(waiters.c.task_id == sa.bindparam("of_task"), waiters.c.follows == sa.bindparam("what_follows"))
_THIS = sa.and_(_TURN, _TASK)
_UNKNOWN = waiters.delete().where(_THIS, waiters.c.message.is_(None))
_OF_TURN = sa.select(waiters).where(_TURN).order_by(waiters.c.task_id, waiters.c.follows)
_SETTLED = (
    waiters.update().where(_TURN).values(leased_until=sa.case((_TASK, sa.bindparam("until", type_=sa.Float))))
)
_FREE = sa.or_(waiters.c.leased_until.is_(None), waiters.c.leased_until <= sa.bindparam("now"))
_ROW = sa.select(waiters).where(_THIS).with_for_update()
_CHANGE = waiters.update().where(_THIS)
_TOLD = waiters.delete().where(_THIS)
_OTHERS = sa.select(sa.exists().where(_TURN))
_UNANSWERED = (
    sa.select(waiters.c.turn_id, waiters.c.settled_at)
    .distinct()
    .where(waiters.c.settled_at <= sa.bindparam("now"), _FREE)
    .order_by(waiters.c.settled_at, waiters.c.turn_id)
    .limit(sa.bindparam("most"))
)


def add(connection: Connection, waiter: Waiter, since: float | None = None) -> bool:
    """Record a task. Return False if it already was, with its message. `since`: when its result came."""
    if waiter.follows:  # replaces the row recorded before its message came
        connection.execute(_UNKNOWN, {**_this(waiter), "what_follows": ""})
    key = {"turn_id": waiter.turn_id, "task_id": waiter.task_id, "follows": waiter.follows}
    row = {**key, "settled_at": since, "message": waiter.message}
    return connection.execute(_noted(connection.dialect.name), row, execution_options=COUNTED).rowcount == 1


@cache
def _noted(dialect: str) -> Any:
    new = upsert(dialect, waiters)
    return new.on_conflict_do_update(
        index_elements=[waiters.c.turn_id, waiters.c.task_id, waiters.c.follows],
        set_={"message": new.excluded.message},
        where=waiters.c.message.is_(None) & new.excluded.message.is_not(None),
    )


def of(connection: Connection, turn_id: str) -> tuple[Waiter, ...]:
    """Return the tasks still waiting for the turn's result."""
    return tuple(_waiter(row) for row in connection.execute(_OF_TURN, {"of_turn": turn_id}).mappings())


def stamped_messages(connection: Connection) -> dict[str, str]:
    """Return the kept messages with stamps, by task id, of tasks whose turns are not settled."""
    stamped = waiters.c.message.contains('"stamps":{"', autoescape=True)
    query = sa.select(waiters.c.task_id, waiters.c.message).where(waiters.c.settled_at.is_(None), stamped)
    return {row.task_id: row.message for row in connection.execute(query)}


def settled(connection: Connection, turn_id: str, at: float, executing: Waiter | None = None) -> None:
    """Record that a turn's result is available to its tasks. The caller may be `executing` one of them."""
    task, follows = (executing.task_id, executing.follows) if executing is not None else (None, None)
    of = {"of_turn": turn_id, "of_task": task, "what_follows": follows}
    connection.execute(_SETTLED, {**of, "settled_at": at, "until": at + LEASE_S})


def unanswered(connection: Connection, now: float, limit: int = 100) -> list[str]:
    """Return settled turns with waiting tasks, except those whose tasks a worker is reporting to."""
    return list(connection.scalars(_UNANSWERED, {"now": now, "most": limit}))


def lease(
    connection: Connection,
    waiter: Waiter,
    now: float,
    trusted: Callable[[Connection], bool] = lambda _: True,
) -> Waiter | None:
    """Lease a task, to be the only one to report to it. Return its current row; None if another has or did.

    Unless `now` is `trusted` (see `LedgerClock.trusted`), no other's lease has expired.
    Killed after: another worker reports once the lease, which `renew` extends, has expired.
    """
    row = connection.execute(_ROW, _this(waiter)).mappings().first()
    if row is None:
        return None
    until = row["leased_until"]
    if until is not None and (until > now or not trusted(connection)):
        return None
    connection.execute(_CHANGE, {**_this(waiter), "leased_until": now + LEASE_S})
    return _waiter(row)


def renew(connection: Connection, held: Iterable[Waiter], now: float) -> None:
    """Extend the leases of these tasks."""
    for waiter in held:
        connection.execute(_CHANGE, {**_this(waiter), "leased_until": now + LEASE_S})


def put_off(connection: Connection, waiter: Waiter, until: float, sent: Collection[str]) -> None:
    """Retry reporting to a task from `until` on, and record which following tasks were sent."""
    known = json.dumps(sorted(sent)) if sent else None
    connection.execute(_CHANGE, {**_this(waiter), "leased_until": until, "sent": known})


def told(connection: Connection, waiter: Waiter) -> bool:
    """Record that a task has the result, and following tasks are sent. Killed before: it is reported again.

    Return True if other tasks wait for its turn.
    """
    connection.execute(_TOLD, _this(waiter))
    return bool(connection.scalar(_OTHERS, {"of_turn": waiter.turn_id}))


def turn_of(connection: Connection, task_id: str) -> str | None:
    """Return the turn that a Celery task waits for, or None."""
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


def _this(waiter: Waiter) -> dict[str, str]:
    return {"of_turn": waiter.turn_id, "of_task": waiter.task_id, "what_follows": waiter.follows}
