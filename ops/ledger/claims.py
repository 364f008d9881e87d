"""Who works on a turn, and where its agent runs."""

from __future__ import annotations

from collections.abc import Collection

import sqlalchemy as sa
from sqlalchemy import Connection, RowMapping

from adapters.request import TurnRequest
from ops.errors import AttemptOpen
from ops.ledger import events
from ops.ledger.database import insert_new
from ops.ledger.records import Attempt, Busy, Claim, HostBusy, NotDue, Renewal, Settled, State
from ops.ledger.schema import attempts, turn_labels, turns
from ops.ledger.slots import refusal
from ops.ledger.turn_rows import attempts_of, change, held, locked, open_attempt, stored_result

_ALWAYS_STORED = {"version", "agent"}  # whatever their defaults are to the runturn that reads them


def submit(connection: Connection, request: TurnRequest, now: float) -> bool:
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
        attempt=0,
        epoch=0,
        cancel_requested=False,
        created_at=now,
    )
    if created and request.labels:
        labels = [{"turn_id": request.turn_id, "name": n, "value": v} for n, v in request.labels.items()]
        connection.execute(turn_labels.insert(), labels)
    return created


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
    refusal = _refusal(connection, row, now)
    if refusal is not None:
        return refusal
    epoch = row["epoch"] + 1
    change(
        connection, turn_id, state=State.RUNNING, owner=owner, epoch=epoch, owner_expires=now + ttl,
        due_at=None, wait_reason=None, wait_host=None,
    )  # fmt: skip
    document = connection.scalar(sa.select(turns.c.request).where(turns.c.turn_id == turn_id))
    return Claim(
        turn_id=turn_id,
        owner=owner,
        epoch=epoch,
        request=TurnRequest.model_validate_json(document or ""),
        created_at=row["created_at"],
        cancel_requested=row["cancel_requested"],
        attempts=attempts_of(connection, turn_id),
    )


def _refusal(connection: Connection, row: RowMapping, now: float) -> Busy | NotDue | Settled | None:
    match row["state"]:
        case State.SETTLED:
            return Settled(stored_result(connection, row["turn_id"]))
        case State.WAITING if row["due_at"] > now:
            return NotDue(row["turn_id"], row["due_at"], row["wait_reason"])
        case State.RUNNING if row["owner"] is not None and row["owner_expires"] > now:
            return Busy(row["turn_id"], row["owner"], row["owner_expires"])
    return None


def renew(connection: Connection, claims: Collection[Claim], now: float, ttl: float) -> Renewal:
    """Prolong leases."""
    if not claims:
        return Renewal(frozenset(), frozenset())
    wanted = [(claim.turn_id, claim.owner, claim.epoch) for claim in claims]
    ours = sa.tuple_(turns.c.turn_id, turns.c.owner, turns.c.epoch).in_(wanted)
    connection.execute(turns.update().where(ours).values(owner_expires=now + ttl))
    rows = connection.execute(sa.select(turns.c.turn_id, turns.c.cancel_requested).where(ours)).all()
    return Renewal(
        held=frozenset(turn_id for turn_id, _ in rows),
        cancelled=frozenset(turn_id for turn_id, cancelled in rows if cancelled),
    )


def release(connection: Connection, claim: Claim) -> None:
    """Let go of a running turn."""
    ours = sa.and_(turns.c.turn_id == claim.turn_id, turns.c.owner == claim.owner, turns.c.epoch == claim.epoch)
    connection.execute(turns.update().where(ours).values(owner=None))


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
) -> Attempt | HostBusy:
    """Record where the agent is about to run, if there is a slot."""
    row = held(connection, claim)
    current = open_attempt(connection, claim.turn_id)
    if current is not None:
        if current.spool_id == spool_id:
            return current
        raise AttemptOpen(claim.turn_id, current.attempt)
    busy = refusal(connection, host, slots) if slots is not None else None
    if busy is not None:
        return busy
    attempt = Attempt(
        turn_id=claim.turn_id,
        attempt=row["attempt"] + 1,
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
        started_at=row["started_at"] if row["started_at"] is not None else now,
    )  # fmt: skip
    return attempt
