"""Admission of turns: one at a time from the broker, or many from a producer."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter

import sqlalchemy as sa
from sqlalchemy import Connection

from adapters.protocol.request import TurnRequest
from ops.ledger import sessions
from ops.ledger.database import insert_new
from ops.ledger.models import Asked, State, Waiter
from ops.ledger.queue import requirements, waiters
from ops.ledger.queue.cancellation import cancel
from ops.ledger.rows import as_stored, locked, stored_result
from ops.ledger.schema import turn_labels, turns

# Built once, as in `rows`.
_EXPIRES = turns.update().where(turns.c.turn_id == sa.bindparam("this"))
_FOR_EVER = _EXPIRES.where(turns.c.expires_at.is_not(None)).values(expires_at=None)
_UNTIL = _EXPIRES.where(turns.c.expires_at < sa.bindparam("until")).values(expires_at=sa.bindparam("until"))


def submit(
    connection: Connection,
    request: TurnRequest,
    now: float,
    due_at: float | None = None,
    *,
    expires_at: float | None = None,
    session_run: str | None = None,
) -> bool:
    """Queue a turn. Return False if it already exists; its expiry is then extended."""
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
    """Extend an existing turn's expiry; None: it never expires."""
    if expires_at is None:
        connection.execute(_FOR_EVER, {"this": turn_id})
    else:
        connection.execute(_UNTIL, {"this": turn_id, "until": expires_at})


def admit(
    connection: Connection,
    request: TurnRequest,
    task_id: str,
    now: float,
    due_at: float | None = None,
    *,
    expires_at: float | None = None,
    revoked: bool = False,
    follows: str = "",
    message: str | None = None,
) -> Asked:
    """Queue a turn that a Celery task requests, and record the task as waiting for the result.

    If the result already exists, it is returned: report it to the task. A new turn may be taken from `due_at` on
    (None: at once) and does not begin after `expires_at`, unless other tasks want it later. A `revoked` turn is
    cancelled unless it is running. `message` is the part of the task's message that is kept until the task has the
    result; a message with a different `follows` is kept in addition. Killed after: the worker that settles the
    turn reports to the task, or a later one finds the turn in `unanswered`.
    """
    turn_id = request.turn_id
    submit(connection, request, now, due_at, expires_at=expires_at)
    row = locked(connection, turn_id)  # so that it is not settled before the task is recorded
    settled = row["state"] == State.SETTLED
    noted = waiters.add(connection, Waiter(turn_id, task_id, follows, message), now if settled else None)
    if revoked:
        cancel(connection, turn_id, now, running=False)
    if settled:
        return Asked(stored_result(connection, turn_id), again=True)
    return Asked(None, again=not noted)


def _place(connection: Connection, request: TurnRequest) -> str:
    """Return the place a new turn needs: its session's host, if it has a session."""
    session = sessions.find(connection, request.session_id) if request.session_id is not None else None
    return requirements.requested(request) if session is None else requirements.on(session.host)


def submit_many(connection: Connection, requests: Iterable[TurnRequest], now: float) -> frozenset[str]:
    """Queue turns in one transaction. Return the ids that were new; of the others, the first request stands.

    Killed before: the messages are delivered again and submit the turns. Other submitters of these turns wait for
    the transaction, so keep a batch to a few hundred.
    """
    # in one order, or two submitters of the same turns could deadlock
    in_one_order = sorted(requests, key=attrgetter("turn_id"))
    new = frozenset(request.turn_id for request in in_one_order if submit(connection, request, now))
    for turn_id in sorted(new):
        waiters.add(connection, Waiter(turn_id, turn_id))  # its message is on the way
    return new
