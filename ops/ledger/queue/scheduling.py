"""The queue's order: which turns a worker takes next.

Turns of dead workers come first: their agents are running. Then those that are queued, or parked and due, in an
order that lets no producer starve another: the fewest running turns of the producer, then the higher priority,
then the older turn.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import sqlalchemy as sa
import structlog
from pydantic import ValidationError
from sqlalchemy import Connection, RowMapping

from ops.ledger.models import Claim, State
from ops.ledger.queue.claims import claimed
from ops.ledger.rows import SMALL, change
from ops.ledger.schema import turns

_LAST_RANK = 9  # of the lowest priority
_UNREADABLE_S = 60.0  # how long an unreadable turn is set aside, so that it does not block others

Admits = Callable[[str], bool]

log = structlog.get_logger(__name__)

_PAIR_AND_RANK = sa.tuple_(turns.c.producer, turns.c.place, turns.c.rank)
_PAIRS = (
    sa.select(turns.c.producer, turns.c.place)
    .where(turns.c.due_at.is_not(None))
    .order_by(turns.c.producer, turns.c.place)
    .limit(1)
)
# With a rank beyond all ranks: to find the next pair, SQLite would read all turns of this one.
_NEXT_PAIR = _PAIRS.where(
    sa.tuple_(sa.bindparam("producer"), sa.bindparam("place"), 1 + _LAST_RANK) < _PAIR_AND_RANK
)
_HEAD = (
    sa.select(*SMALL)
    .where(
        turns.c.producer == sa.bindparam("producer"),
        turns.c.place == sa.bindparam("place"),
        turns.c.due_at <= sa.bindparam("now"),
    )
    .order_by(turns.c.rank, turns.c.created_at, turns.c.turn_id)
    .limit(1)
    .with_for_update(key_share=True, skip_locked=True)
)
_ORPHANS = (
    sa.select(*SMALL)
    .where(turns.c.state == State.RUNNING, turns.c.owner_expires <= sa.bindparam("now"))
    .order_by(turns.c.owner_expires)
    .limit(sa.bindparam("most"))
    .with_for_update(key_share=True, skip_locked=True)
)
_RUNNING = (
    sa.select(turns.c.producer, sa.func.count()).where(turns.c.state == State.RUNNING).group_by(turns.c.producer)
)


@dataclass(order=True, slots=True)
class _Head:
    """The first turn of one producer for one place, ordered among all heads."""

    running: int  # turns of its producer
    rank: tuple[int, float, str]  # higher priority first, then older
    row: RowMapping = field(compare=False)


def take(
    connection: Connection,
    owner: str,
    admits: Admits,
    now: float,
    ttl: float,
    limit: int,
    trusted: Callable[[Connection], bool] = lambda _: True,
) -> list[Claim]:
    """Claim up to `limit` turns, in places (see `requirements`) that `admits` accepts; it is called once per turn.

    Turns of dead workers come first, then those that are queued or due: the fewest running turns of the
    producer, the higher priority, the older turn. `Claim.open` is the attempt to attach to; None: begin one.
    Unless `now` is `trusted` (see `LedgerClock.trusted`), no worker counts as dead.
    Killed after: the leases expire after `ttl` seconds without renewal, and other owners take the turns.
    """
    taken = []
    orphans = connection.execute(_ORPHANS, {"now": now, "most": limit}).mappings().all()
    for row in orphans if orphans and trusted(connection) else ():
        claim = _claimed(connection, row, owner, now, ttl) if admits(row["place"]) else None
        if claim is not None:
            taken.append(claim)
    waiting = list(_pairs(connection))
    if waiting and len(taken) < limit:
        taken += _shared_out(connection, waiting, owner, admits, now, ttl, limit - len(taken))
    return taken


def _pairs(connection: Connection) -> Iterator[tuple[str, str]]:
    """Yield the producers with waiting turns, and the places they wait for: one index lookup each."""
    found = connection.execute(_PAIRS).first()
    while found is not None:
        yield found[0], found[1]
        found = connection.execute(_NEXT_PAIR, {"producer": found[0], "place": found[1]}).first()


def _shared_out(
    connection: Connection,
    waiting: list[tuple[str, str]],
    owner: str,
    admits: Admits,
    now: float,
    ttl: float,
    limit: int,
) -> Iterator[Claim]:
    running: dict[str, int] = {row[0]: row[1] for row in connection.execute(_RUNNING)}
    heads: list[_Head] = []

    def look(producer: str, place: str) -> None:
        row = connection.execute(_HEAD, {"producer": producer, "place": place, "now": now}).mappings().first()
        if row is not None:
            rank = (row["rank"], row["created_at"], row["turn_id"])
            heapq.heappush(heads, _Head(running.get(producer, 0), rank, row))

    for producer, place in waiting:
        look(producer, place)
    full: set[str] = set()
    while heads and limit > 0:
        head = heapq.heappop(heads)
        producer, place = head.row["producer"], head.row["place"]
        if place in full:
            continue
        if head.running < running.get(producer, 0):  # another turn of the producer was taken since
            heapq.heappush(heads, _Head(running[producer], head.rank, head.row))
        elif admits(place):
            claim = _claimed(connection, head.row, owner, now, ttl)
            if claim is not None:
                yield claim
                running[producer] = running.get(producer, 0) + 1
                limit -= 1
            look(producer, place)
        else:
            full.add(place)


def _claimed(connection: Connection, row: RowMapping, owner: str, now: float, ttl: float) -> Claim | None:
    """Claim a turn, or return None and leave it for a while to workers that can read its request."""
    try:
        return claimed(connection, row, owner, now, ttl)
    except ValidationError:
        log.warning("only a newer runturn can read this turn: upgrade this worker", turn_id=row["turn_id"])
        when = "owner_expires" if row["state"] == State.RUNNING else "due_at"
        change(connection, row["turn_id"], **{when: now + _UNREADABLE_S})
        return None
