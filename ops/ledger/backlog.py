"""What there is to do: counts for metrics, without reading any turn."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy import Connection

from ops.ledger import dead_letters
from ops.ledger.queries import open_attempts
from ops.ledger.records import Backlog
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


def backlog(connection: Connection, now: float) -> Backlog:
    """What waits, and what runs where."""
    ready, since = connection.execute(_READY, {"now": now}).one()
    parked = {reason or _DUE_LATER: count for reason, count in connection.execute(_PARKED, {"now": now})}
    return Backlog(ready, since, parked, open_attempts(connection), dead_letters.count(connection))
