"""Ids that people shorten."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy import ColumnElement, Connection, Select

from ops.ledger.schema import session_runs, turns

_RUN, _TURN, _OF_RUN = session_runs.c.run_id, turns.c.turn_id, turns.c.session_run


def starting_with(connection: Connection, prefix: str, limit: int) -> list[str]:
    """Return at most `limit` ids of turns and of sessions of turns that start with the prefix, an equal one first.

    A session stands for its turns. PREFIX.N also finds ids that start with PREFIX and end with .N, as those do.
    """
    sqlite = connection.dialect.name == "sqlite"

    def starts(column: ColumnElement[str], text: str) -> ColumnElement[bool]:
        if sqlite:  # its LIKE ignores case, and reads the whole index
            return sa.and_(column >= text, column < text + "\U0010ffff")
        return column.startswith(text, autoescape=True)

    single = sa.or_(_OF_RUN.is_(None), sa.not_(starts(_OF_RUN, prefix)))
    queries: list[Select[str]] = [
        sa.select(_RUN).where(starts(_RUN, prefix)).order_by(_RUN),
        sa.select(_TURN).where(starts(_TURN, prefix), single).order_by(_TURN),
    ]
    head, _, number = prefix.rpartition(".")
    if head and number.isdecimal():
        numbered = (starts(_TURN, head), _TURN.endswith(f".{number}"))
        queries.append(sa.select(_TURN).where(*numbered).order_by(_TURN))
    return sorted({found for query in queries for found in connection.scalars(query.limit(limit))})[:limit]
