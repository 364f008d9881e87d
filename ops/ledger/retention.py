"""Removal of turns settled long ago: first their details, then the turns themselves.

The running totals stay. Every call is one short transaction, so that other workers do not wait long for theirs;
turns that another worker is removing are skipped.
"""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import ColumnElement, Connection, Table

from ops.ledger.models import UNSETTLED
from ops.ledger.schema import (
    attempt_stderr,
    attempts,
    events,
    session_runs,
    sessions,
    turn_labels,
    turns,
    usage,
    waiters,
)

ROWS = 5_000  # of events per transaction, plus those of one turn
# Deleted before the turns, to which they refer.
_OF_TURNS = (events, attempt_stderr, waiters, turn_labels, usage, attempts)


@dataclass(frozen=True, slots=True)
class Forgotten:
    """Numbers of what was removed from the ledger; false if nothing was."""

    details: int = 0  # turns and sessions of turns that lost their events and request
    turns: int = 0
    sessions: int = 0
    session_runs: int = 0  # sessions of turns

    def __bool__(self) -> bool:
        return self != _NOTHING

    def __add__(self, other: Forgotten) -> Forgotten:
        return Forgotten(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))


_NOTHING = Forgotten()


def forget(
    connection: Connection,
    details_before: float,
    turns_before: float,
    limit: int = 100,
    *,
    archiving: bool = False,
) -> Forgotten:
    """Remove a batch of turns settled before these times; call again until nothing is removed.

    With `archiving`, turns whose transcript is not archived yet stay.

    Events and requests go first, then the turns, and the sessions unused since then. History and bills show a
    turn until it is removed, and totals still include it afterwards. Its id may then be reused.
    """
    archived = sa.or_(turns.c.archived_at.is_not(None), turns.c.request.is_(None)) if archiving else sa.true()
    return Forgotten(
        details=_forget_details(connection, sa.and_(turns.c.settled_at < details_before, archived), limit)
        + _forget_session_requests(connection, details_before, limit),
        turns=_forget_turns(connection, sa.and_(turns.c.settled_at < turns_before, archived), limit),
        sessions=_forget_sessions(connection, turns_before, limit),
        session_runs=_forget_session_runs(connection, turns_before, limit),
    )


def _forget_details(connection: Connection, old_enough: ColumnElement[bool], limit: int) -> int:
    """Remove events and the request with its prompt; history and bills need neither."""
    old = _oldest(connection, sa.and_(old_enough, turns.c.request.is_not(None)), limit)
    done = _forget_events(connection, old)
    connection.execute(attempt_stderr.delete().where(attempt_stderr.c.turn_id.in_(done)))
    connection.execute(turns.update().where(turns.c.turn_id.in_(done)).values(request=None))
    return len(done)


def _forget_turns(connection: Connection, old_enough: ColumnElement[bool], limit: int) -> int:
    old = _oldest(connection, old_enough, limit)
    done = _forget_events(connection, old)
    for table in (*_OF_TURNS, turns):
        connection.execute(table.delete().where(table.c.turn_id.in_(done)))
    return len(done)


def _forget_events(connection: Connection, turn_ids: list[str]) -> list[str]:
    """Delete events turn by turn, until `ROWS` are deleted. Return the turns that have none left."""
    rows = 0
    for count, turn_id in enumerate(turn_ids, 1):
        rows += connection.execute(events.delete().where(events.c.turn_id == turn_id)).rowcount
        if rows >= ROWS:
            return turn_ids[:count]
    return turn_ids


def _forget_sessions(connection: Connection, before: float, limit: int) -> int:
    """Remove sessions unused since `before` that no unsettled turn needs."""
    wanted = sa.select(turns.c.session_id).where(turns.c.state.in_(UNSETTLED), turns.c.session_id.is_not(None))
    idle = sa.and_(
        sessions.c.updated_at < before,
        sessions.c.locked_by.is_(None),
        sessions.c.session_id.not_in(wanted),
    )
    old = _locked(connection, sessions, sessions.c.session_id, sessions.c.updated_at, idle, limit)
    connection.execute(sessions.delete().where(sessions.c.session_id.in_(old)))
    return len(old)


def _forget_session_requests(connection: Connection, before: float, limit: int) -> int:
    ended, key = session_runs.c.settled_at, session_runs.c.run_id
    detailed = sa.and_(ended < before, session_runs.c.request.is_not(None))
    old = _locked(connection, session_runs, key, ended, detailed, limit)
    connection.execute(session_runs.update().where(key.in_(old)).values(request=None))
    return len(old)


def _forget_session_runs(connection: Connection, before: float, limit: int) -> int:
    ended, key = session_runs.c.settled_at, session_runs.c.run_id
    old = _locked(connection, session_runs, key, ended, ended < before, limit)
    connection.execute(waiters.delete().where(waiters.c.turn_id.in_(old)))
    connection.execute(session_runs.delete().where(key.in_(old)))
    return len(old)


def _oldest(connection: Connection, condition: ColumnElement[bool], limit: int) -> list[str]:
    """Return the oldest turns that meet the condition; only settled ones have `settled_at`."""
    return _locked(connection, turns, turns.c.turn_id, turns.c.settled_at, condition, limit)


def _locked(
    connection: Connection,
    table: Table,
    key: ColumnElement[str],
    age: ColumnElement[float],
    condition: ColumnElement[bool],
    limit: int,
) -> list[str]:
    query = sa.select(key).select_from(table).where(condition).order_by(age).limit(limit)
    return list(connection.scalars(query.with_for_update(of=table, skip_locked=True)))
