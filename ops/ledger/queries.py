"""Questions that people ask: history, bills, totals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import ColumnElement, Connection, FromClause, RowMapping

from adapters.request import TurnRequest
from adapters.result import TurnResult
from adapters.usage import Tokens
from ops.errors import UnknownTurn
from ops.ledger.money import dollars
from ops.ledger.records import CostKey, CostRow, ModelTotals, OutcomeTotals, Spent, State, Totals, TurnRow
from ops.ledger.schema import TOKEN_KINDS, attempts, model_totals, outcome_totals, turn_labels, turns, usage

_LISTED = (
    "turn_id", "agent", "host", "session_id", "workspace", "owner", "owner_expires", "cancel_requested",
    "due_at", "wait_reason", "created_at", "started_at", "settled_at", "status", "error_kind",
)  # fmt: skip
_UNSETTLED = (State.QUEUED, State.RUNNING, State.WAITING)


def turn(connection: Connection, turn_id: str) -> TurnRow:
    """One turn; raises UnknownTurn."""
    rows = _rows(connection, turns.c.turn_id == turn_id, 1)
    if not rows:
        raise UnknownTurn(turn_id)
    return rows[0]


def request(connection: Connection, turn_id: str) -> TurnRequest | None:
    """What was asked."""
    document = connection.scalar(sa.select(turns.c.request).where(turns.c.turn_id == turn_id))
    return TurnRequest.model_validate_json(document) if document else None


def result(connection: Connection, turn_id: str) -> TurnResult | None:
    """What came of it."""
    document = connection.scalar(sa.select(turns.c.result).where(turns.c.turn_id == turn_id))
    return TurnResult.model_validate_json(document) if document else None


def history(
    connection: Connection,
    limit: int,
    *,
    status: str | None,
    agent: str | None,
    host: str | None,
    label: tuple[str, str] | None,
) -> list[TurnRow]:
    """The newest turns."""
    conditions: list[ColumnElement[bool]] = []
    if status is not None:
        conditions.append((turns.c.state if status in _UNSETTLED else turns.c.status) == status)
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
    query = sa.select(*columns).where(condition).order_by(turns.c.created_at.desc(), turns.c.turn_id)
    found = connection.execute(query.limit(limit)).mappings().all()
    ids = [row["turn_id"] for row in found]
    labels, spent = _labels(connection, ids), _spent(connection, ids)
    return [
        TurnRow(
            **{name: row[name] for name in _LISTED},
            state=State(row["state"]),
            attempts=row["attempt"],
            labels=labels.get(row["turn_id"], {}),
            spent=spent.get(row["turn_id"], Spent()),
        )
        for row in found
    ]


def _labels(connection: Connection, ids: Sequence[str]) -> dict[str, dict[str, str]]:
    query = sa.select(turn_labels).where(turn_labels.c.turn_id.in_(ids)).order_by(turn_labels.c.name)
    labels: dict[str, dict[str, str]] = {}
    for turn_id, name, value in connection.execute(query):
        labels.setdefault(turn_id, {})[name] = value
    return labels


def _spent(connection: Connection, ids: Sequence[str]) -> dict[str, Spent]:
    query = sa.select(usage.c.turn_id, *_sums()).where(usage.c.turn_id.in_(ids)).group_by(usage.c.turn_id)
    return {row["turn_id"]: _read_sums(row) for row in connection.execute(query).mappings()}


def _sums() -> list[ColumnElement[Any]]:
    observed, priced = usage.c.observed, usage.c.cost_nano.is_not(None)
    all_kinds = sum((usage.c[kind] for kind in TOKEN_KINDS), sa.literal(0))
    return [
        *(sa.func.sum(sa.case((observed, usage.c[kind]), else_=0)).label(kind) for kind in TOKEN_KINDS),
        *(
            sa.func.sum(sa.case((observed, 0), else_=usage.c[kind])).label(f"estimated_{kind}")
            for kind in TOKEN_KINDS
        ),
        sa.func.sum(sa.case((observed, usage.c.cost_nano))).label("cost_nano"),
        sa.func.sum(sa.case((sa.and_(observed, ~priced), all_kinds), else_=0)).label("unpriced_tokens"),
    ]


def _read_sums(row: RowMapping) -> Spent:
    # int(): PostgreSQL sums whole numbers up to decimals
    return Spent(
        tokens=Tokens(**{kind: int(row[kind]) for kind in TOKEN_KINDS}),
        cost_usd=dollars(row["cost_nano"]),
        unpriced_tokens=int(row["unpriced_tokens"]),
        estimated=Tokens(**{kind: int(row[f"estimated_{kind}"]) for kind in TOKEN_KINDS}),
    )


def cost(connection: Connection, by: CostKey, since: float | None) -> list[CostRow]:
    """The bill of all attempts that ended at or after `since`."""
    tables: FromClause = usage  # with what is needed: there may be a million rows
    if by == CostKey.HOST or since is not None:
        tables = tables.join(attempts)
    if by == CostKey.AGENT:
        tables = tables.join(turns, turns.c.turn_id == usage.c.turn_id)
    if by == CostKey.LABEL:
        tables = tables.join(turn_labels, turn_labels.c.turn_id == usage.c.turn_id)
    key = {
        CostKey.MODEL: usage.c.model,
        CostKey.AGENT: turns.c.agent,
        CostKey.HOST: attempts.c.host,
        CostKey.LABEL: turn_labels.c.name + "=" + turn_labels.c.value,
    }[by]
    counted = sa.func.count(usage.c.turn_id.distinct()).label("turns")
    query = sa.select(key.label("key"), counted, *_sums()).select_from(tables).group_by(key)
    if since is not None:
        query = query.where(attempts.c.ended_at >= since)
    rows = [CostRow(row["key"], row["turns"], _read_sums(row)) for row in connection.execute(query).mappings()]
    return sorted(rows, key=lambda row: (-(row.spent.cost_usd or 0.0), row.key))


def ping(connection: Connection) -> None:
    """Read something, from the database itself."""
    connection.execute(sa.select(turns.c.state).limit(1))


def totals(connection: Connection) -> Totals:
    """What metrics show."""
    models = tuple(
        ModelTotals(
            agent=row["agent"],
            model=row["model"],
            observed=row["observed"],
            tokens=Tokens(**{kind: row[kind] for kind in TOKEN_KINDS}),
            cost_usd=dollars(row["cost_nano"]),
            unpriced_tokens=row["unpriced_tokens"],
        )
        for row in connection.execute(sa.select(model_totals)).mappings()
    )
    outcomes = tuple(OutcomeTotals(**row) for row in connection.execute(sa.select(outcome_totals)).mappings())
    return Totals(models, outcomes)


def queue_depths(connection: Connection) -> dict[State, int]:
    """How many turns stand where; those that are settled are not counted."""
    depths = dict.fromkeys(_UNSETTLED, 0)
    query = sa.select(turns.c.state, sa.func.count()).where(turns.c.state.in_(list(depths)))
    for state, count in connection.execute(query.group_by(turns.c.state)):
        depths[State(state)] = count
    return depths


def open_attempts(connection: Connection) -> dict[str, int]:
    """How many attempts have not ended where."""
    query = sa.select(attempts.c.host, sa.func.count()).where(attempts.c.ended_at.is_(None))
    return {str(host): int(count) for host, count in connection.execute(query.group_by(attempts.c.host))}
