"""The events of a turn, for those who come late: numbered from 1, without gaps."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy import Connection

from ops.errors import EventGap
from ops.ledger.records import Claim
from ops.ledger.schema import events
from ops.ledger.turn_rows import held


def append(connection: Connection, claim: Claim, first_seq: int, lines: Sequence[bytes]) -> int:
    """Store what is new of a batch."""
    held(connection, claim)
    stored = last_seq(connection, claim.turn_id)
    if first_seq > stored + 1:
        raise EventGap(claim.turn_id, stored, first_seq)
    new = lines[stored + 1 - first_seq :]
    if not new:
        return stored
    row = {"first_seq": stored + 1, "last_seq": stored + len(new), "lines": b"\n".join(new)}
    connection.execute(events.insert().values(turn_id=claim.turn_id, **row))
    return stored + len(new)


def last_seq(connection: Connection, turn_id: str) -> int:
    """The sequence number of the last event stored."""
    query = sa.select(events.c.last_seq).where(events.c.turn_id == turn_id)
    return int(connection.scalar(query.order_by(events.c.first_seq.desc()).limit(1)) or 0)


def after(connection: Connection, turn_id: str, after_seq: int) -> list[tuple[int, bytes]]:
    """The events after a sequence number."""
    query = (
        sa.select(events.c.first_seq, events.c.lines)
        .where(events.c.turn_id == turn_id, events.c.last_seq > after_seq)
        .order_by(events.c.first_seq)
    )
    return [
        (seq, line)
        for first_seq, lines in connection.execute(query)
        for seq, line in enumerate(lines.split(b"\n"), first_seq)
        if seq > after_seq
    ]
