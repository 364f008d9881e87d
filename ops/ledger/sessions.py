"""Agents' sessions: where they are, each locked by one turn at a time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from ops.ledger.database import insert_new, upsert
from ops.ledger.models import Claim
from ops.ledger.rows import held
from ops.ledger.schema import sessions

# Built once, as in `rows`.
_HOLDER = sa.select(sessions.c.locked_by).where(sessions.c.session_id == sa.bindparam("this"))
_UNLOCK = sessions.update().where(sessions.c.locked_by == sa.bindparam("of_turn"))


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A session: where it is, and the turn that has locked it."""

    session_id: str
    agent: str
    host: str
    workspace: str
    locked_by: str | None  # turn id
    updated_at: float


@dataclass(frozen=True, slots=True)
class InUse:
    """Another turn has locked the session."""

    session_id: str
    turn_id: str


def lock(
    connection: Connection,
    claim: Claim,
    session_id: str,
    *,
    agent: str,
    host: str,
    workspace: str,
    now: float,
) -> SessionRow | InUse:
    """Lock a session, recorded or new, until the turn settles. Raises StaleClaim.

    The turn has the lock, not its owner: a successor locks again and gets it.
    """
    held(connection, claim)
    row = SessionRow(session_id, agent, host, workspace, locked_by=claim.turn_id, updated_at=now)
    values = {name: getattr(row, name) for name in SessionRow.__dataclass_fields__}
    connection.execute(_lock(connection.dialect.name), values)
    holder = connection.scalar(_HOLDER, {"this": session_id})
    return row if holder == claim.turn_id else InUse(session_id, str(holder))


@cache
def _lock(dialect: str) -> Any:
    new = upsert(dialect, sessions)
    free = sa.or_(sessions.c.locked_by.is_(None), sessions.c.locked_by == new.excluded.locked_by)
    moved = {name: new.excluded[name] for name in SessionRow.__dataclass_fields__}
    return new.on_conflict_do_update(index_elements=["session_id"], set_=moved, where=free)


def unlock(connection: Connection, turn_id: str, now: float) -> None:
    """Unlock all sessions of a turn."""
    connection.execute(_UNLOCK, {"of_turn": turn_id, "locked_by": None, "updated_at": now})


def remember(
    connection: Connection, session_id: str, *, agent: str, host: str, workspace: str, now: float
) -> None:
    """Record a session that no turn locked; an existing record stays as it is."""
    place = {"agent": agent, "host": host, "workspace": workspace}
    insert_new(connection, sessions, session_id=session_id, locked_by=None, updated_at=now, **place)


def find(connection: Connection, session_id: str) -> SessionRow | None:
    """Return a session, or None if it is not recorded."""
    columns = [sessions.c[name] for name in SessionRow.__dataclass_fields__]
    query = sa.select(*columns).where(sessions.c.session_id == session_id)
    row = connection.execute(query).mappings().first()
    return SessionRow(**row) if row else None
