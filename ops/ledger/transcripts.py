"""What the ledger keeps for the archive of transcripts: which turns are not in it yet, and what goes into it."""

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
    """What a turn's transcript is made of."""

    turn_id: str
    agent: str
    host: str | None
    session_id: str | None
    attempt: int  # the last one; 0: there was none
    created_at: float
    settled_at: float
    status: str
    error_kind: str | None
    events: tuple[bytes, ...]  # one JSON object each, in order
    stderr: Mapping[int, bytes]  # by attempt, of those that wrote any


def keep_stderr(connection: Connection, claim: Claim, attempt: int, text: bytes) -> None:
    """Keep what the agent wrote to stderr in an attempt, for the archive. Raises StaleClaim.

    Call it before the attempt is booked: its successor reads no spool of an attempt that has ended.
    """
    held(connection, claim)
    compressed = gzip.compress(text, mtime=0)
    insert_new(connection, attempt_stderr, turn_id=claim.turn_id, attempt=attempt, text=compressed)


def unarchived(
    connection: Connection, settled_before: float, after: tuple[float, str] = (0.0, ""), limit: int = 100
) -> list[tuple[float, str]]:
    """When turns were settled that have no transcript in the archive yet, and their ids; the oldest first.

    `after` is the last one of the page before.
    """
    key = (turns.c.settled_at, turns.c.turn_id)
    query = sa.select(*key).where(
        _UNARCHIVED, turns.c.settled_at <= settled_before, sa.tuple_(*key) > sa.tuple_(*after)
    )
    return [(row[0], row[1]) for row in connection.execute(query.order_by(*key).limit(limit))]


def source(connection: Connection, turn_id: str) -> TranscriptSource | None:
    """What the transcript of a settled turn is made of; None: it is in the archive, or there is none."""
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
    """Note that the archive has a turn's transcript. Killed before: it is written once more, as it was."""
    connection.execute(turns.update().where(turns.c.turn_id == turn_id).values(archived_at=now))
    connection.execute(attempt_stderr.delete().where(attempt_stderr.c.turn_id == turn_id))
