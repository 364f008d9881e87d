"""Messages that no worker could read, kept until somebody looks at them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson
import sqlalchemy as sa
from sqlalchemy import Connection

from ops.ledger.database import insert_new
from ops.ledger.schema import dead_letters

MAX_BODY_BYTES = 32 * 1024 * 1024  # the longest valid request is well below
MAX_LETTERS = 10_000  # the oldest ones fall out: whoever sends that many mends the sender first


@dataclass(frozen=True, slots=True)
class DeadLetterRow:
    """What is known of a message, without its body."""

    letter_id: str  # follows from the message: the same one again is kept once
    received_at: float  # Unix time in seconds
    reason: str  # why it could not be read
    task_id: str | None  # as far as it names one
    queue: str  # where it came from, and goes to if it is sent again
    content_type: str | None
    content_encoding: str | None
    headers: dict[str, Any]  # JSON values
    body_bytes: int  # its length; a body longer than MAX_BODY_BYTES is not kept


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message as it was."""

    row: DeadLetterRow
    body: bytes | None  # None: it was too long to be kept


_ROW = [column for column in dead_letters.c if column.name != "body"]


def count(connection: Connection) -> int:
    """How many dead letters there are."""
    return connection.scalar(sa.select(sa.func.count()).select_from(dead_letters)) or 0


def newest(connection: Connection, limit: int) -> list[DeadLetterRow]:
    """The newest ones first."""
    query = sa.select(*_ROW).order_by(dead_letters.c.received_at.desc(), dead_letters.c.letter_id)
    return [_row(row) for row in connection.execute(query.limit(limit)).mappings()]


def find(connection: Connection, letter_id: str) -> DeadLetter | None:
    """One of them."""
    query = sa.select(dead_letters).where(dead_letters.c.letter_id == letter_id)
    found = connection.execute(query).mappings().one_or_none()
    return DeadLetter(_row(found), found["body"]) if found else None


def remove(connection: Connection, letter_id: str) -> bool:
    """Forget one; False: there is none of that id."""
    return connection.execute(sa.delete(dead_letters).where(dead_letters.c.letter_id == letter_id)).rowcount == 1


def sent_again(connection: Connection, row: DeadLetterRow) -> None:
    """Forget one whose message is queued again, unless that has come back meanwhile."""
    as_it_was = (dead_letters.c.letter_id == row.letter_id, dead_letters.c.received_at == row.received_at)
    connection.execute(sa.delete(dead_letters).where(*as_it_was))


def keep(connection: Connection, letter: DeadLetter) -> bool:
    """Keep a message; False: it is kept already, and notes that it has come again.

    Acknowledge it after: killed in between, it comes again.
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
