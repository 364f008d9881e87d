"""Contents for the archive of transcripts: which turns it still lacks, and what goes into their transcripts."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import Connection

from ops.ledger import events
from ops.ledger.database import insert_new
from ops.ledger.models import Claim
from ops.ledger.rows import held
from ops.ledger.schema import attempt_stderr, turns

_UNARCHIVED = sa.and_(turns.c.settled_at.is_not(None), turns.c.archived_at.is_(None), turns.c.request.is_not(None))
_TOLD = ("turn_id", "agent", "host", "session_id", "attempt", "created_at", "settled_at", "status", "error_kind")


@dataclass(frozen=True, slots=True)
class TranscriptSource:
    """Contents of a turn's transcript."""

    turn_id: str
    agent: str
    host: str | None
    session_id: str | None
    attempt: int  # the last one; 0: none
    created_at: float
    settled_at: float
    status: str
    error_kind: str | None
    events: tuple[bytes, ...]  # one JSON object each, in order
    stderr: Mapping[int, bytes]  # by attempt, for those that wrote any


def keep_stderr(connection: Connection, claim: Claim, attempt: int, text: bytes) -> None:
    """Keep what the agent wrote to stderr in an attempt, for the archive. Raises StaleClaim.

    Call it before booking the attempt: a successor does not read the spool of an attempt that has ended.
    """
    held(connection, claim)
    compressed = gzip.compress(text, mtime=0)
    insert_new(connection, attempt_stderr, turn_id=claim.turn_id, attempt=attempt, text=compressed)


def unarchived(
    connection: Connection, settled_before: float, after: tuple[float, str] = (0.0, ""), limit: int = 100
) -> list[tuple[float, str]]:
    """Return settlement times and ids of settled turns not yet in the archive, oldest first.

    `after` is the last entry of the previous page.
    """
    key = (turns.c.settled_at, turns.c.turn_id)
    query = sa.select(*key).where(
        _UNARCHIVED, turns.c.settled_at <= settled_before, sa.tuple_(*key) > sa.tuple_(*after)
    )
    return [(row[0], row[1]) for row in connection.execute(query.order_by(*key).limit(limit))]


def source(connection: Connection, turn_id: str) -> TranscriptSource | None:
    """Return the contents of a settled turn's transcript; None if it is archived or there is none."""
    columns = [turns.c[name] for name in _TOLD]
    query = sa.select(*columns).where(turns.c.turn_id == turn_id, _UNARCHIVED)
    row = connection.execute(query).mappings().first()
    if row is None:
        return None
    written = sa.select(attempt_stderr.c.attempt, attempt_stderr.c.text)
    written = written.where(attempt_stderr.c.turn_id == turn_id).order_by(attempt_stderr.c.attempt)
    return TranscriptSource(
        **row,
        events=tuple(line for _, line in events.after(connection, turn_id, 0)),
        stderr={attempt: gzip.decompress(text) for attempt, text in connection.execute(written)},
    )


def archived(connection: Connection, turn_id: str, now: float) -> None:
    """Record that a turn's transcript is archived. Killed before: it is written again, unchanged."""
    connection.execute(turns.update().where(turns.c.turn_id == turn_id).values(archived_at=now))
    connection.execute(attempt_stderr.delete().where(attempt_stderr.c.turn_id == turn_id))
