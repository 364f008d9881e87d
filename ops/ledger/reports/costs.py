"""Usage and cost of turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import sqlalchemy as sa
from sqlalchemy import ColumnElement, Connection, FromClause, RowMapping, Select

from adapters.usage import NO_TOKENS, Tokens
from ops.ledger.accounting.money import dollars
from ops.ledger.schema import TOKEN_KINDS, attempts, turn_labels, turns, usage

_COUNTED = sa.func.count(usage.c.turn_id.distinct()).label("turns")


class CostKey(StrEnum):
    """Key that a bill is split by."""

    MODEL = "model"
    AGENT = "agent"
    HOST = "host"
    LABEL = "label"
    OUTCOME = "outcome"
    VERSION = "version"


@dataclass(frozen=True, slots=True)
class Spent:
    """Booked usage. Estimates are separate and in no other number."""

    tokens: Tokens = NO_TOKENS  # observed
    cost_usd: float | None = None  # of the observed tokens with a price; None: none has one
    unpriced_tokens: int = 0  # observed tokens without a price
    estimated: Tokens = NO_TOKENS


@dataclass(frozen=True, slots=True)
class CostRow:
    """One line of a bill."""

    # A model, an agent, a host, a label's name=value, an attempt's outcome, or an agent and its version.
    key: str
    turns: int
    spent: Spent


def cost(connection: Connection, by: CostKey, since: float | None = None) -> list[CostRow]:
    """Return the bill, highest cost first. By label, a turn counts once for each of its labels."""
    tables: FromClause = usage  # joins only what is needed: there may be a million rows
    if by in (CostKey.HOST, CostKey.OUTCOME, CostKey.VERSION) or since is not None:
        tables = tables.join(attempts)
    if by in (CostKey.AGENT, CostKey.VERSION):
        tables = tables.join(turns, turns.c.turn_id == usage.c.turn_id)
    if by == CostKey.LABEL:
        tables = tables.join(turn_labels, turn_labels.c.turn_id == usage.c.turn_id)
    key = {
        CostKey.MODEL: usage.c.model,
        CostKey.AGENT: turns.c.agent,
        CostKey.HOST: attempts.c.host,
        CostKey.LABEL: turn_labels.c.name + "=" + turn_labels.c.value,
        CostKey.OUTCOME: attempts.c.outcome,
        CostKey.VERSION: turns.c.agent + " " + sa.func.coalesce(attempts.c.agent_version, "unknown"),
    }[by]
    query = sa.select(key.label("key"), _COUNTED, *_sums()).select_from(tables).group_by(key)
    return sorted(_bill(connection, query, since), key=lambda row: (-(row.spent.cost_usd or 0.0), row.key))


def total(connection: Connection, since: float | None = None) -> list[CostRow]:
    """Return the sum of the bill, in which each turn counts once; nothing if nothing was used."""
    tables: FromClause = usage if since is None else usage.join(attempts)
    query = sa.select(sa.literal("total").label("key"), _COUNTED, *_sums()).select_from(tables)
    return _bill(connection, query, since)


def _bill(connection: Connection, query: Select[Any], since: float | None) -> list[CostRow]:
    if since is not None:
        query = query.where(attempts.c.ended_at >= since)
    rows = connection.execute(query).mappings()
    return [CostRow(row["key"], row["turns"], _read_sums(row)) for row in rows if row["turns"]]


def by_turn(connection: Connection, ids: Sequence[str]) -> dict[str, Spent]:
    """Return what each of these turns has used."""
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
    # int(): PostgreSQL's sums of integers are decimals
    return Spent(
        tokens=Tokens(**{kind: int(row[kind]) for kind in TOKEN_KINDS}),
        cost_usd=dollars(row["cost_nano"]),
        unpriced_tokens=int(row["unpriced_tokens"]),
        estimated=Tokens(**{kind: int(row[f"estimated_{kind}"]) for kind in TOKEN_KINDS}),
    )
