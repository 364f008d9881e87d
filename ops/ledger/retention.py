"""What the ledger forgets: turns that were settled long ago, first their details and then themselves.

The running totals stay. Every call is one short transaction, so that no worker waits long for its own; turns that
another worker is forgetting are passed over.
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

ROWS = 5_000  # of events in one transaction, and those of one turn more
# Before the turns themselves: they refer to those.
_OF_TURNS = (events, attempt_stderr, waiters, turn_labels, usage, attempts)


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What is no longer in the ledger; false if that is nothing."""

    details: int = 0  # turns, and sessions of turns, without their events and their request from now on
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
    """Forget a batch of turns that were settled before these times; call again until it is nothing.

    `archiving`: but no turn whose transcript has yet to be put into the archive.

    First their events and requests, then the turns, and the sessions that none has used since then. History
    and bills show a turn until it is forgotten; totals never forget. Its id may be used anew from then on.
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
    """The events, and the prompt with the rest of the request; history and bills need neither."""
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
    """Delete events of these turns, turn by turn until it is enough; returns the turns that have none any more."""
    rows = 0
    for count, turn_id in enumerate(turn_ids, 1):
        rows += connection.execute(events.delete().where(events.c.turn_id == turn_id)).rowcount
        if rows >= ROWS:
            return turn_ids[:count]
    return turn_ids


def _forget_sessions(connection: Connection, before: float, limit: int) -> int:
    """Those that no turn has used for so long, and that none waits for."""
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
    """Turns that meet the condition; only those that are settled have `settled_at`."""
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
