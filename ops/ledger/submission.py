"""Many turns at a time: what a producer asks for, and what came of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import islice
from operator import attrgetter

import sqlalchemy as sa
from sqlalchemy import Connection

from adapters.request import TurnRequest
from ops.ledger import claims
from ops.ledger.records import State
from ops.ledger.schema import turns

_ASKED_AT_ONCE = 1_000  # turn ids in one statement


def submit_many(connection: Connection, requests: Iterable[TurnRequest], now: float) -> frozenset[str]:
    """Record turns as queued; those that are known already stay as they are."""
    # in one order, or two that submit the same turns would lock each other out
    in_one_order = sorted(requests, key=attrgetter("turn_id"))
    return frozenset(request.turn_id for request in in_one_order if claims.submit(connection, request, now))


def settled(connection: Connection, turn_ids: Collection[str]) -> frozenset[str]:
    """Those that have their result."""
    found: set[str] = set()
    remaining = iter(turn_ids)
    while asked := list(islice(remaining, _ASKED_AT_ONCE)):
        query = sa.select(turns.c.turn_id).where(turns.c.turn_id.in_(asked), turns.c.state == State.SETTLED)
        found.update(connection.scalars(query))
    return frozenset(found)
