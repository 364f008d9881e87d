"""Contents of a live view: running turns, recent spending, load by host. Queried about once a second."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import Connection

from ops.ledger.accounting.money import dollars
from ops.ledger.models import State
from ops.ledger.schema import TOKEN_KINDS, attempts, turns, usage

_RUNNING = (
    sa.select(
        turns.c.turn_id,
        turns.c.agent,
        turns.c.host,
        turns.c.producer,
        turns.c.attempt,
        turns.c.created_at,
        turns.c.started_at,
        turns.c.owner_expires,
        turns.c.cancel_requested,
    )
    .where(turns.c.state == State.RUNNING)
    .order_by(turns.c.started_at, turns.c.turn_id)
    .limit(sa.bindparam("limit"))
)
_COUNT = sa.select(sa.func.count()).where(turns.c.state == State.RUNNING)


@dataclass(frozen=True, slots=True)
class RunningTurn:
    """A turn that is claimed, and not settled or parked yet."""

    turn_id: str
    agent: str
    host: str | None  # of the latest attempt; before the first, as requested
    producer: str
    attempt: int  # the latest begun; 0 before the first
    created_at: float
    started_at: float | None  # of the first attempt
    owner_expires: float | None  # in the past: no worker follows it
    cancel_requested: bool


@dataclass(frozen=True, slots=True)
class Spending:
    """Usage within a period."""

    tokens: int  # observed
    cost_usd: float | None  # of those with a price; None: none has one
    unpriced_tokens: int


@dataclass(frozen=True, slots=True)
class HostLoad:
    """Resources that attempts took of a host, of those that have ended within a period."""

    cpu_ms: int | None  # None: unknown
    peak_memory_bytes: int | None  # the most that a single one took; None: unknown


def running(connection: Connection, limit: int) -> tuple[int, list[RunningTurn]]:
    """Return the number of running turns, and the oldest of them."""
    rows = connection.execute(_RUNNING, {"limit": limit}).mappings()
    return int(connection.scalar(_COUNT) or 0), [RunningTurn(**row) for row in rows]


def spending(connection: Connection, since: Sequence[float]) -> list[Spending]:
    """Return, for each of these times, what the attempts used that ended at or after it."""
    tokens = sum((usage.c[kind] for kind in TOKEN_KINDS), sa.literal(0))
    columns = []
    for start in since:
        # As a condition in WHERE, `observed` would make SQLite read all usage, not just that of these attempts.
        within = sa.and_(usage.c.observed, attempts.c.ended_at >= start)
        unpriced = sa.and_(within, usage.c.cost_nano.is_(None))
        columns += [
            sa.func.sum(sa.case((within, tokens), else_=0)),
            sa.func.sum(sa.case((within, usage.c.cost_nano))),
            sa.func.sum(sa.case((unpriced, tokens), else_=0)),
        ]
    query = sa.select(*columns).select_from(attempts.join(usage)).where(attempts.c.ended_at >= min(since))
    row = connection.execute(query).one()
    sums = [row[start : start + 3] for start in range(0, len(row), 3)]
    # int(): PostgreSQL's sums of integers are decimals
    return [Spending(int(count or 0), dollars(cost), int(no_price or 0)) for count, cost, no_price in sums]


def host_loads(connection: Connection, since: float) -> dict[str, HostLoad]:
    """Return, by host, what the attempts took that ended at or after `since`."""
    cpu, memory = sa.func.sum(attempts.c.cpu_ms), sa.func.max(attempts.c.peak_memory_bytes)
    query = sa.select(attempts.c.host, cpu, memory).where(attempts.c.ended_at >= since).group_by(attempts.c.host)
    rows = connection.execute(query).all()
    # int(): PostgreSQL's sums of integers are decimals
    return {host: HostLoad(None if used is None else int(used), peak) for host, used, peak in rows}
