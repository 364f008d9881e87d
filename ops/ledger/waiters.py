"""Who else is to be told of a turn's result: the same turn may be queued several times, under several task ids."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy import Connection

from ops.ledger.database import upsert
from ops.ledger.schema import waiters


def add(connection: Connection, turn_id: str, task_id: str) -> None:
    """Remember a task; once is enough."""
    statement = upsert(connection, waiters).values(turn_id=turn_id, task_id=task_id)
    connection.execute(statement.on_conflict_do_nothing())


def of(connection: Connection, turn_id: str) -> frozenset[str]:
    """The tasks that wait for a turn."""
    query = sa.select(waiters.c.task_id).where(waiters.c.turn_id == turn_id)
    return frozenset(connection.scalars(query))
