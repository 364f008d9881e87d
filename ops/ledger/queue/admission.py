"""Turns as they come in: one at a time from the broker, or many from a producer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter

import sqlalchemy as sa
from sqlalchemy import Connection

from adapters.protocol.request import TurnRequest
from adapters.protocol.result import TurnResult
from ops.ledger import sessions
from ops.ledger.database import insert_new
from ops.ledger.models import State, Waiter
from ops.ledger.queue import requirements, waiters
from ops.ledger.rows import as_stored, locked, stored_result
from ops.ledger.schema import turn_labels, turns

# Made once, as in `rows`.
_EXPIRES = turns.update().where(turns.c.turn_id == sa.bindparam("this"))
_FOR_EVER = _EXPIRES.where(turns.c.expires_at.is_not(None)).values(expires_at=None)
_UNTIL = _EXPIRES.where(turns.c.expires_at < sa.bindparam("until")).values(expires_at=sa.bindparam("until"))


@dataclass(frozen=True, slots=True)
class Asked:
    """A turn that a task asked for."""

    result: TurnResult | None  # it has one already
    again: bool  # the task had asked before, or the turn was settled


def submit(
    connection: Connection,
    request: TurnRequest,
    now: float,
    due_at: float | None = None,
    *,
    expires_at: float | None = None,
    session_run: str | None = None,
) -> bool:
    """Record a turn as queued; False: it is known already, and may begin for as long as anybody wants it to."""
    created = insert_new(
        connection,
        turns,
        turn_id=request.turn_id,
        request=as_stored(request),
        state=State.QUEUED,
        agent=request.agent,
        host=request.host,
        session_id=request.session_id,
        workspace=request.workspace,
        producer=request.producer,
        rank=-request.priority,
        place=_place(connection, request),
        attempt=0,
        epoch=0,
        cancel_requested=False,
        due_at=now if due_at is None else due_at,
        expires_at=expires_at,
        created_at=now,
        session_run=session_run,
    )
    if created and request.labels:
        labels = [{"turn_id": request.turn_id, "name": n, "value": v} for n, v in request.labels.items()]
        connection.execute(turn_labels.insert(), labels)
    if not created:
        prolong(connection, request.turn_id, expires_at)
    return created


def prolong(connection: Connection, turn_id: str, expires_at: float | None) -> None:
    """Have a turn that is known begin until then, too; None: whenever it comes."""
    if expires_at is None:
        connection.execute(_FOR_EVER, {"this": turn_id})
    else:
        connection.execute(_UNTIL, {"this": turn_id, "until": expires_at})


def admit(
    connection: Connection,
    request: TurnRequest,
    waiter: Waiter,
    now: float,
    due_at: float | None,
    expires_at: float | None,
) -> Asked:
    """Record a turn that a task asks for, and the task."""
    submit(connection, request, now, due_at, expires_at=expires_at)
    row = locked(connection, request.turn_id)  # so that it is not settled between a look at it and the note
    settled = row["state"] == State.SETTLED
    noted = waiters.add(connection, waiter, now if settled else None)
    if settled:
        return Asked(stored_result(connection, request.turn_id), again=True)
    return Asked(None, again=not noted)


def _place(connection: Connection, request: TurnRequest) -> str:
    """Where a new turn wants to go: to its session, if it has one."""
    session = sessions.find(connection, request.session_id) if request.session_id is not None else None
    return requirements.requested(request) if session is None else requirements.on(session.host)


def submit_many(connection: Connection, requests: Iterable[TurnRequest], now: float) -> frozenset[str]:
    """Record turns as queued, in one transaction; returns the ids that were new: of others, the first stays.

    Killed before: the messages are delivered again and submit. Others who submit these turns wait
    meanwhile, so some hundred are enough.
    """
    # in one order, or two that submit the same turns would lock each other out
    in_one_order = sorted(requests, key=attrgetter("turn_id"))
    new = frozenset(request.turn_id for request in in_one_order if submit(connection, request, now))
    for turn_id in sorted(new):
        waiters.add(connection, Waiter(turn_id, turn_id))  # its message is on the way
    return new
