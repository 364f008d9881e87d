"""Stored events of a turn, for late readers: numbered from 1, without gaps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import Connection

from ops.errors import EventGap
from ops.ledger.models import Claim
from ops.ledger.rows import held
from ops.ledger.schema import events, turns

_LAST = (
    sa.select(events.c.last_seq)
    .where(events.c.turn_id == sa.bindparam("turn_id"))
    .order_by(events.c.first_seq.desc())
    .limit(1)
)


@dataclass(frozen=True, slots=True)
class Batch:
    """Consecutive events of a turn."""

    claim: Claim
    first_seq: int
    lines: Sequence[bytes]  # one JSON object each, without a newline


def append(connection: Connection, claim: Claim, first_seq: int, lines: Sequence[bytes]) -> int:
    """Store events, one JSON line each without a newline. Return the last sequence number stored.

    Events already stored are skipped, so a successor that reads the spool from the start offers all of them again.
    Raises StaleClaim, and EventGap if events before `first_seq` are missing: offer those, too.
    """
    held(connection, claim)
    stored = last_seq(connection, claim.turn_id)
    row = _new(Batch(claim, first_seq, lines), stored)
    if row is None:
        return stored
    connection.execute(events.insert(), row)
    return first_seq + len(lines) - 1


def append_many(connection: Connection, batches: Sequence[Batch]) -> frozenset[str]:
    """Store one batch of events for each of many turns, as `append` does, in one transaction.

    Return the turns whose batch was refused because their claim is stale or earlier events are missing.
    """
    claims = {batch.claim.turn_id: batch.claim for batch in batches}
    ids = list(claims)
    query = sa.select(turns.c.turn_id, turns.c.epoch, turns.c.owner).where(turns.c.turn_id.in_(ids))
    query = query.order_by(turns.c.turn_id).with_for_update(key_share=True)
    owned = {
        turn_id
        for turn_id, epoch, owner in connection.execute(query)
        if (epoch, owner) == (claims[turn_id].epoch, claims[turn_id].owner)
    }
    last = sa.select(events.c.turn_id, sa.func.max(events.c.last_seq)).where(events.c.turn_id.in_(ids))
    stored = {turn_id: int(seq) for turn_id, seq in connection.execute(last.group_by(events.c.turn_id))}
    rows, refused = [], set(claims) - owned
    for batch in batches:
        turn_id = batch.claim.turn_id
        if turn_id in refused:
            continue
        try:
            row = _new(batch, stored.get(turn_id, 0))
        except EventGap:
            refused.add(turn_id)
            continue
        if row is not None:
            rows.append(row)
    if rows:
        connection.execute(events.insert(), rows)
    return frozenset(refused)


def _new(batch: Batch, stored: int) -> dict[str, object] | None:
    """Return the row for the new events of a batch, if any. Raises EventGap."""
    turn_id = batch.claim.turn_id
    if batch.first_seq > stored + 1:
        raise EventGap(turn_id, stored, batch.first_seq)
    new = batch.lines[stored + 1 - batch.first_seq :]
    if not new:
        return None
    seqs = {"first_seq": stored + 1, "last_seq": stored + len(new)}
    return {"turn_id": turn_id, **seqs, "lines": b"\n".join(new)}


def last_seq(connection: Connection, turn_id: str) -> int:
    """Return the sequence number of the last stored event, or 0."""
    return int(connection.scalar(_LAST, {"turn_id": turn_id}) or 0)


def after(connection: Connection, turn_id: str, after_seq: int = 0) -> list[tuple[int, bytes]]:
    """Return the stored events after a sequence number, in order; a turn's first event is number 1."""
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
