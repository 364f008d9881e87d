"""Messages that no worker could read, kept for the operator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson
import sqlalchemy as sa
from sqlalchemy import Connection

from ops.ledger.database import insert_new
from ops.ledger.schema import dead_letters

MAX_BODY_BYTES = 32 * 1024 * 1024  # well above the longest valid request
MAX_LETTERS = 10_000  # the oldest are dropped: with that many, fix the sender first


@dataclass(frozen=True, slots=True)
class DeadLetterRow:
    """A dead letter without its body."""

    letter_id: str  # derived from the message: a duplicate is kept once
    received_at: float  # Unix time in seconds
    reason: str  # why it could not be read
    task_id: str | None  # if the message names one
    queue: str  # where it came from, and is sent again
    content_type: str | None
    content_encoding: str | None
    headers: dict[str, Any]  # JSON values
    body_bytes: int  # its length; a body longer than MAX_BODY_BYTES is not kept


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message as received."""

    row: DeadLetterRow
    body: bytes | None  # None: too long to keep


_ROW = [column for column in dead_letters.c if column.name != "body"]


def count(connection: Connection) -> int:
    """Return the number of dead letters."""
    return connection.scalar(sa.select(sa.func.count()).select_from(dead_letters)) or 0


def newest(connection: Connection, limit: int) -> list[DeadLetterRow]:
    """Return the newest dead letters, newest first."""
    query = sa.select(*_ROW).order_by(dead_letters.c.received_at.desc(), dead_letters.c.letter_id)
    return [_row(row) for row in connection.execute(query.limit(limit)).mappings()]


def find(connection: Connection, letter_id: str) -> DeadLetter | None:
    """Return one dead letter, or None."""
    query = sa.select(dead_letters).where(dead_letters.c.letter_id == letter_id)
    found = connection.execute(query).mappings().one_or_none()
    return DeadLetter(_row(found), found["body"]) if found else None


def remove(connection: Connection, letter_id: str) -> bool:
    """Remove a dead letter. Return False if there is none of that id."""
    return connection.execute(sa.delete(dead_letters).where(dead_letters.c.letter_id == letter_id)).rowcount == 1


def sent_again(connection: Connection, row: DeadLetterRow) -> None:
    """Remove a dead letter whose message is queued again, unless it has come back since."""
    as_it_was = (dead_letters.c.letter_id == row.letter_id, dead_letters.c.received_at == row.received_at)
    connection.execute(sa.delete(dead_letters).where(*as_it_was))


def keep(connection: Connection, letter: DeadLetter) -> bool:
    """Keep a message. Return False if it is already kept; its time of receipt is then updated.

    Acknowledge it after this: if killed in between, it is delivered again.
    """
    row = letter.row
    body = letter.body if row.body_bytes <= MAX_BODY_BYTES else None
    values = {column.name: getattr(row, column.name) for column in _ROW if column.name != "headers"}
    new = insert_new(connection, dead_letters, **values, headers=orjson.dumps(row.headers).decode(), body=body)
    if not new:
        known = dead_letters.c.letter_id == row.letter_id
        connection.execute(sa.update(dead_letters).where(known).values(received_at=row.received_at))
    else:
        newest = dead_letters.c.received_at.desc(), dead_letters.c.letter_id
        surplus = sa.select(dead_letters.c.letter_id).order_by(*newest).offset(MAX_LETTERS)
        connection.execute(sa.delete(dead_letters).where(dead_letters.c.letter_id.in_(surplus)))
    return new


def _row(row: sa.RowMapping) -> DeadLetterRow:
    values = {column.name: row[column.name] for column in _ROW}
    return DeadLetterRow(**{**values, "headers": orjson.loads(row["headers"])})
