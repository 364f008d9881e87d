"""The backlog: counts for metrics, without reading any turn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import Connection

from ops.ledger import dead_letters
from ops.ledger.models import UNSETTLED, State
from ops.ledger.queue.host_slots import open_attempts
from ops.ledger.schema import turns

_DUE_LATER = "due_later"

_READY = sa.select(sa.func.count(), sa.func.min(turns.c.due_at)).where(
    turns.c.due_at.is_not(None), turns.c.due_at <= sa.bindparam("now")
)
_PARKED = (
    sa.select(turns.c.wait_reason, sa.func.count())
    .where(turns.c.due_at.is_not(None), turns.c.due_at > sa.bindparam("now"))
    .group_by(turns.c.wait_reason)
)


@dataclass(frozen=True, slots=True)
class Backlog:
    """Work that waits or runs."""

    ready: int  # turns that start as soon as there is room
    ready_since: float | None  # of the one that could have started first; None: none
    parked: Mapping[str, int]  # turns that wait for a time, by reason: an error kind or `due_later`
    open_attempts: Mapping[str, int]  # attempts that have not ended, by host
    dead_letters: int


def backlog(connection: Connection, now: float) -> Backlog:
    """Return what waits, and what runs where."""
    ready, since = connection.execute(_READY, {"now": now}).one()
    parked = {reason or _DUE_LATER: count for reason, count in connection.execute(_PARKED, {"now": now})}
    return Backlog(ready, since, parked, open_attempts(connection), dead_letters.count(connection))


def queue_depths(connection: Connection) -> dict[State, int]:
    """Return the numbers of queued, running and waiting turns."""
    depths = dict.fromkeys(UNSETTLED, 0)
    query = sa.select(turns.c.state, sa.func.count()).where(turns.c.state.in_(list(depths)))
    for state, count in connection.execute(query.group_by(turns.c.state)):
        depths[State(state)] = count
    return depths
