"""Turns as people query them: one, or the newest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import ColumnElement, Connection

from adapters.protocol.request import TurnRequest
from adapters.protocol.result import TurnResult
from ops.errors import UnknownTurn
from ops.ledger.models import UNSETTLED, State
from ops.ledger.reports import costs, descriptions
from ops.ledger.reports.costs import Spent
from ops.ledger.schema import attempts, turn_labels, turns

_LISTED = (
    "turn_id", "agent", "host", "session_id", "workspace", "owner", "owner_expires", "cancel_requested",
    "due_at", "wait_reason", "created_at", "started_at", "settled_at", "status", "error_kind",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TurnRow:
    """A turn as listed, without its request and result."""

    turn_id: str
    state: State
    agent: str
    host: str | None  # of the latest attempt; before the first, as requested
    agent_version: str | None  # of the latest attempt; None: unknown
    session_id: str | None
    workspace: str | None
    labels: Mapping[str, str]
    attempts: int
    owner: str | None
    owner_expires: float | None
    cancel_requested: bool
    due_at: float | None
    wait_reason: str | None
    created_at: float
    started_at: float | None  # of the first attempt
    settled_at: float | None
    status: str | None
    error_kind: str | None
    spent: Spent


def turn(connection: Connection, turn_id: str) -> TurnRow:
    """Return one turn. Raises UnknownTurn."""
    rows = _rows(connection, turns.c.turn_id == turn_id, 1)
    if not rows:
        raise UnknownTurn(turn_id)
    return rows[0]


def request(connection: Connection, turn_id: str) -> TurnRequest | None:
    """Return a turn's request; None if the turn is not recorded, or its request was refused or removed."""
    document = connection.scalar(sa.select(turns.c.request).where(turns.c.turn_id == turn_id))
    return TurnRequest.model_validate_json(document) if document else None


def result(connection: Connection, turn_id: str) -> TurnResult | None:
    """Return a turn's result; None if it is not settled or not recorded."""
    document = connection.scalar(sa.select(turns.c.result).where(turns.c.turn_id == turn_id))
    return TurnResult.model_validate_json(document, extra="ignore") if document else None


def history(
    connection: Connection,
    limit: int = 50,
    *,
    status: str | None = None,
    agent: str | None = None,
    host: str | None = None,
    label: tuple[str, str] | None = None,
) -> list[TurnRow]:
    """Return the newest turns first. `status` is a state (queued, running, waiting) or a result's status."""
    conditions: list[ColumnElement[bool]] = []
    if status is not None:
        conditions.append((turns.c.state if status in UNSETTLED else turns.c.status) == status)
    if agent is not None:
        conditions.append(turns.c.agent == agent)
    if host is not None:
        conditions.append(turns.c.host == host)
    if label is not None:
        name, value = label
        labelled = sa.select(turn_labels.c.turn_id).where(turn_labels.c.name == name, turn_labels.c.value == value)
        conditions.append(turns.c.turn_id.in_(labelled))
    return _rows(connection, sa.and_(sa.true(), *conditions), limit)


def _rows(connection: Connection, condition: ColumnElement[bool], limit: int) -> list[TurnRow]:
    columns = [turns.c[name] for name in (*_LISTED, "state", "attempt")]
    latest = sa.and_(attempts.c.turn_id == turns.c.turn_id, attempts.c.attempt == turns.c.attempt)
    query = sa.select(*columns, attempts.c.agent_version).select_from(turns.outerjoin(attempts, latest))
    query = query.where(condition).order_by(turns.c.created_at.desc(), turns.c.turn_id)
    found = connection.execute(query.limit(limit)).mappings().all()
    ids = [row["turn_id"] for row in found]
    labels, spent = descriptions.labels(connection, ids), costs.by_turn(connection, ids)
    return [
        TurnRow(
            **{name: row[name] for name in _LISTED},
            state=State(row["state"]),
            agent_version=row["agent_version"],
            attempts=row["attempt"],
            labels=labels.get(row["turn_id"], {}),
            spent=spent.get(row["turn_id"], Spent()),
        )
        for row in found
    ]
