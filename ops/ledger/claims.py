"""Who works on a turn, and where its agent runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import sqlalchemy as sa
from sqlalchemy import Connection, RowMapping

from adapters.request import TurnRequest
from ops.errors import AttemptOpen
from ops.ledger import budgets, events, places, sessions, waiters
from ops.ledger.database import insert_new
from ops.ledger.records import (
    Asked,
    Attempt,
    Busy,
    Claim,
    HostBusy,
    NotDue,
    OverBudget,
    Renewal,
    Settled,
    State,
)
from ops.ledger.schema import attempts, turn_labels, turns
from ops.ledger.slots import refusal
from ops.ledger.turn_rows import (
    attempts_of,
    change,
    held,
    locked,
    open_attempt,
    stored_request,
    stored_result,
)

_ALWAYS_STORED = {"version", "agent"}  # whatever their defaults are to the runturn that reads them


def submit(
    connection: Connection,
    request: TurnRequest,
    now: float,
    due_at: float | None = None,
    *,
    session_run: str | None = None,
) -> bool:
    """Record a turn as queued."""
    created = insert_new(
        connection,
        turns,
        turn_id=request.turn_id,
        request=_stored(request),
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
        created_at=now,
        session_run=session_run,
    )
    if created and request.labels:
        labels = [{"turn_id": request.turn_id, "name": n, "value": v} for n, v in request.labels.items()]
        connection.execute(turn_labels.insert(), labels)
    return created


def admit(connection: Connection, request: TurnRequest, task_id: str, now: float, due_at: float | None) -> Asked:
    """Record a turn that a task asks for, and the task."""
    submit(connection, request, now, due_at)
    row = locked(connection, request.turn_id)  # so that it is not settled between a look at it and the note
    noted = waiters.add(connection, request.turn_id, task_id, row["settled_at"])
    if row["state"] == State.SETTLED:
        return Asked(stored_result(connection, request.turn_id), again=True)
    return Asked(None, again=not noted)


def _place(connection: Connection, request: TurnRequest) -> str:
    """Where a new turn wants to go: to its session, if it has one."""
    session = sessions.find(connection, request.session_id) if request.session_id is not None else None
    return places.requested(request) if session is None else places.on(session.host)


def _stored(request: TurnRequest) -> str:
    """As JSON, without what is at its default: an older runturn reads no request with a field it does not know."""
    fields = TurnRequest.model_fields.items()
    at_default = {name for name, field in fields if getattr(request, name) == field.default}
    return request.model_dump_json(exclude=at_default - _ALWAYS_STORED)


def claim(
    connection: Connection, turn_id: str, owner: str, now: float, ttl: float
) -> Claim | Busy | NotDue | Settled:
    """Take a turn, if it can be taken."""
    row = locked(connection, turn_id)
    return _refusal(connection, row, now) or claimed(connection, row, owner, now, ttl)


def claimed(connection: Connection, row: RowMapping, owner: str, now: float, ttl: float) -> Claim:
    """Take a turn whose row is locked, and which is free. Raises ValidationError for a newer runturn's request."""
    turn_id, epoch = row["turn_id"], row["epoch"] + 1
    request = stored_request(connection, turn_id)
    change(
        connection, turn_id, state=State.RUNNING, owner=owner, epoch=epoch, owner_expires=now + ttl,
        due_at=None, wait_reason=None,
    )  # fmt: skip
    return Claim(
        turn_id=turn_id,
        owner=owner,
        epoch=epoch,
        request=request,
        created_at=row["created_at"],
        ready_at=row["due_at"] if row["state"] == State.QUEUED else None,
        cancel_requested=row["cancel_requested"],
        attempts=attempts_of(connection, turn_id) if row["attempt"] else (),
        session_run=row["session_run"],
    )


def route(connection: Connection, claim: Claim, agent: str) -> Claim:
    """Settle which agent a turn is for."""
    held(connection, claim)
    request = claim.request.model_copy(update={"agent": agent})
    change(connection, claim.turn_id, agent=agent, request=_stored(request))
    return replace(claim, request=request)


def _refusal(connection: Connection, row: RowMapping, now: float) -> Busy | NotDue | Settled | None:
    match row["state"]:
        case State.SETTLED:
            return Settled(stored_result(connection, row["turn_id"]))
        case State.WAITING | State.QUEUED if row["due_at"] > now:
            return NotDue(row["turn_id"], row["due_at"], row["wait_reason"])
        case State.RUNNING if row["owner"] is not None and row["owner_expires"] > now:
            return Busy(row["turn_id"], row["owner"], row["owner_expires"])
    return None


def renew(connection: Connection, claims: Collection[Claim], now: float, ttl: float) -> Renewal:
    """Prolong leases."""
    # Locked in one order: so does whoever else locks many turns.
    held = _held(connection, claims, locked=True)
    connection.execute(turns.update().where(turns.c.turn_id.in_(held)).values(owner_expires=now + ttl))
    return _renewal(held)


def standing(connection: Connection, claims: Collection[Claim]) -> Renewal:
    """What has become of claims."""
    return _renewal(_held(connection, claims, locked=False))


def release(connection: Connection, claims: Collection[Claim], now: float) -> None:
    """Let go of running turns."""
    held = _held(connection, claims, locked=True)
    connection.execute(turns.update().where(turns.c.turn_id.in_(held)).values(owner=None, owner_expires=now))


def _held(connection: Connection, claims: Collection[Claim], *, locked: bool) -> dict[str, bool]:
    """The turns whose claims are not stale, with whether they are to be cancelled.

    By their key alone: SQLite reads all turns there are to find those whose (turn_id, owner, epoch) is in a list.
    """
    ours = {(claim.turn_id, claim.owner, claim.epoch) for claim in claims}
    columns = (turns.c.turn_id, turns.c.owner, turns.c.epoch, turns.c.cancel_requested)
    query = sa.select(*columns).where(turns.c.turn_id.in_([claim.turn_id for claim in claims]))
    if locked:
        query = query.order_by(turns.c.turn_id).with_for_update(key_share=True)
    rows = connection.execute(query)
    return {turn_id: cancelled for turn_id, owner, epoch, cancelled in rows if (turn_id, owner, epoch) in ours}


def _renewal(held: Mapping[str, bool]) -> Renewal:
    return Renewal(frozenset(held), frozenset(turn_id for turn_id, cancelled in held.items() if cancelled))


def begin_attempt(
    connection: Connection,
    claim: Claim,
    *,
    host: str,
    spool_id: str,
    session_id: str | None,
    resume: bool,
    now: float,
    slots: int | None,
    lease_s: int | None,
    stop_grace_s: float | None,
) -> Attempt | HostBusy | OverBudget:
    """Record where the agent is about to run, if there is a slot, and money left."""
    row = held(connection, claim)
    current = open_attempt(connection, claim.turn_id)
    if current is not None:
        if current.spool_id == spool_id:
            return current
        raise AttemptOpen(claim.turn_id, current.attempt)
    busy = refusal(connection, host, slots) if slots is not None else None
    if busy is not None:
        return busy
    number = row["attempt"] + 1
    over = budgets.reserve(connection, claim.request, number, now)
    if over is not None:
        return over
    attempt = Attempt(
        turn_id=claim.turn_id,
        attempt=number,
        host=host,
        spool_id=spool_id,
        session_id=session_id,
        resume=resume,
        first_seq=events.last_seq(connection, claim.turn_id) + 1,
        started_at=now,
        lease_s=lease_s,
        stop_grace_s=stop_grace_s,
    )
    values = {name: getattr(attempt, name) for name in Attempt.__dataclass_fields__}
    connection.execute(attempts.insert().values(values))
    change(
        connection, claim.turn_id, attempt=attempt.attempt, host=host, session_id=session_id,
        place=places.at(host), started_at=row["started_at"] if row["started_at"] is not None else now,
    )  # fmt: skip
    return attempt
