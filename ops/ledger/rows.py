"""The row of one turn, for transactions that change it: locked, fenced, read in parts."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, RowMapping

from adapters.protocol.request import TurnRequest
from adapters.protocol.result import TurnResult
from ops.errors import StaleClaim, UnknownTurn
from ops.ledger.models import Attempt, Claim
from ops.ledger.schema import attempts, turns

_LARGE = {turns.c.request, turns.c.result}  # up to 10 MB each: read only where needed
SMALL = [column for column in turns.c if column not in _LARGE]
_ATTEMPT = [attempts.c[name] for name in Attempt.__dataclass_fields__]

_ALWAYS_STORED = {"version", "agent"}  # even at their defaults: the reading runturn's may differ

# Built once: building a statement takes longer than executing it.
_THIS = turns.c.turn_id == sa.bindparam("this")  # not the column's name: an UPDATE would take it for a value
_ROW = sa.select(*SMALL).where(_THIS).with_for_update(key_share=True)
_CHANGE = turns.update().where(_THIS)
_REQUEST = sa.select(turns.c.request).where(_THIS)
_RESULT = sa.select(turns.c.result).where(_THIS)
_ATTEMPTS = sa.select(*_ATTEMPT).where(attempts.c.turn_id == sa.bindparam("this")).order_by(attempts.c.attempt)
_OPEN = attempts.c.ended_at.is_(None)
_OPEN_ATTEMPT = _ATTEMPTS.where(_OPEN)
_CHANGE_OPEN = attempts.update().where(attempts.c.turn_id == sa.bindparam("this"), _OPEN)


def locked(connection: Connection, turn_id: str) -> RowMapping:
    """Return the turn's row, locked until the transaction ends. Raises UnknownTurn. Always take this lock first.

    SQLite has one writer at a time anyway. FOR NO KEY UPDATE: rows that refer to the turn need not wait.
    """
    row = connection.execute(_ROW, {"this": turn_id}).mappings().first()
    if row is None:
        raise UnknownTurn(turn_id)
    return row


def held(connection: Connection, claim: Claim) -> RowMapping:
    """Return the turn's row, locked, for its owner. Raises StaleClaim. An expired lease counts until reclaimed."""
    row = locked(connection, claim.turn_id)
    fence(row, claim)
    return row


def fence(row: RowMapping, claim: Claim) -> None:
    """Raise StaleClaim unless the claim owns the turn of this row."""
    if (row["epoch"], row["owner"]) != (claim.epoch, claim.owner):
        raise StaleClaim(claim.turn_id, claim.epoch)


def change(connection: Connection, turn_id: str, **values: Any) -> None:
    """Update a locked turn."""
    connection.execute(_CHANGE, {"this": turn_id, **values})


def change_open(connection: Connection, turn_id: str, **values: Any) -> None:
    """Update the open attempt of a locked turn, if any."""
    connection.execute(_CHANGE_OPEN, {"this": turn_id, **values})


def stored_request(connection: Connection, turn_id: str) -> TurnRequest:
    """Return the request of a turn."""
    document = connection.scalar(_REQUEST, {"this": turn_id})
    return TurnRequest.model_validate_json(document or "")


def stored_result(connection: Connection, turn_id: str) -> TurnResult:
    """Return the result of a settled turn, without what newer workers may have added to it."""
    document = connection.scalar(_RESULT, {"this": turn_id})
    return TurnResult.model_validate_json(document or "", extra="ignore")


def attempts_of(connection: Connection, turn_id: str) -> tuple[Attempt, ...]:
    """Return all attempts of a turn, first to last."""
    return tuple(Attempt(**row) for row in connection.execute(_ATTEMPTS, {"this": turn_id}).mappings())


def open_attempt(connection: Connection, turn_id: str) -> Attempt | None:
    """Return the attempt whose agent may be running, if any."""
    row = connection.execute(_OPEN_ATTEMPT, {"this": turn_id}).mappings().first()
    return Attempt(**row) if row else None


def as_stored(request: TurnRequest) -> str:
    """Return the request as JSON without defaults: an older runturn rejects requests with unknown fields."""
    fields = TurnRequest.model_fields.items()
    at_default = {name for name, field in fields if getattr(request, name) == field.default}
    return request.model_dump_json(exclude=at_default - _ALWAYS_STORED)
