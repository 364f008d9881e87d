"""Booking of what attempts used: once each, together with the running totals."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import groupby
from operator import itemgetter
from typing import Any

import sqlalchemy as sa
from sqlalchemy import ColumnElement, Connection, RowMapping

from adapters.usage import ModelUsage, Tokens, Usage, UsageSource
from ops.ledger.accounting import budgets
from ops.ledger.accounting.money import dollars, nano
from ops.ledger.database import upsert
from ops.ledger.models import AttemptEnd
from ops.ledger.schema import TOKEN_KINDS, attempts, failure_totals, model_totals, outcome_totals, usage

# Built once, as in `rows`.
_END_ONCE = (
    attempts.update()
    .where(
        attempts.c.turn_id == sa.bindparam("of_turn"),
        attempts.c.attempt == sa.bindparam("number"),
        attempts.c.ended_at.is_(None),
    )
    .values(
        session_id=sa.func.coalesce(attempts.c.session_id, sa.bindparam("told_session")),
        agent_version=sa.func.coalesce(sa.bindparam("told_version", type_=sa.Text), attempts.c.agent_version),
    )
)
_VERSION = sa.select(attempts.c.agent_version).where(
    attempts.c.turn_id == sa.bindparam("of_turn"), attempts.c.attempt == sa.bindparam("number")
)
_USED = usage.insert()
_SOURCE = ("attempt", "usage_source", "usage_complete")
_BOOKED = (
    sa.select(
        *(attempts.c[name] for name in _SOURCE), *(usage.c[name] for name in ("model", *TOKEN_KINDS, "cost_nano"))
    )
    .select_from(attempts.outerjoin(usage))
    .where(attempts.c.turn_id == sa.bindparam("of_turn"), attempts.c.ended_at.is_not(None))
    .order_by(attempts.c.attempt, usage.c.model)
)
COMPLETED = "completed"  # the outcome of an attempt that did not fail


def book(connection: Connection, turn_id: str, agent: str, ended: AttemptEnd, now: float) -> bool:
    """Book an attempt of a locked turn. Return False if it already was.

    Its end is written first: it can be written only once.
    """
    end = {
        "ended_at": now,
        "outcome": ended.outcome,
        "exit_code": ended.exit_code,
        "cpu_ms": ended.cpu_ms,
        "peak_memory_bytes": ended.peak_memory_bytes,
        "usage_source": ended.usage.source,
        "usage_complete": ended.usage.complete,
    }
    told = {"told_session": ended.session_id, "told_version": ended.agent_version}
    this = {"of_turn": turn_id, "number": ended.attempt, **told}
    if connection.execute(_END_ONCE, {**this, **end}).rowcount == 0:
        return False
    enter(connection, turn_id, ended.attempt, agent, ended.usage)
    if ended.outcome != COMPLETED:
        version = connection.scalar(_VERSION, {"of_turn": turn_id, "number": ended.attempt})
        count_failure(connection, agent, version, ended.outcome, ended.usage, now)
    budgets.settle(connection, turn_id, ended.attempt, known_cost(ended.usage), now)
    return True


def enter(connection: Connection, turn_id: str, attempt: int, agent: str, used: Usage) -> None:
    """Record what an attempt used, and add it to the totals."""
    observed = used.source.observed
    for model, amount in sorted(used.by_model.items()):  # sorted: two bookings lock totals in one order
        row = {"turn_id": turn_id, "attempt": attempt, "model": model, "observed": observed}
        connection.execute(_USED, {**row, **_amounts(amount)})
        _add_to_totals(connection, {"agent": agent, "model": model, "observed": observed}, amount)


def known_cost(used: Usage) -> int:
    """Return the known cost in nano dollars: models without a price are left out."""
    return sum(nano(amount.cost_usd) or 0 for amount in used.by_model.values())


def _amounts(used: ModelUsage) -> dict[str, int | None]:
    return {**{kind: getattr(used.tokens, kind) for kind in TOKEN_KINDS}, "cost_nano": nano(used.cost_usd)}


def _add_to_totals(connection: Connection, key: dict[str, Any], used: ModelUsage) -> None:
    unpriced = used.tokens.total if used.cost_usd is None else 0
    row = {**key, **_amounts(used), "unpriced_tokens": unpriced}
    connection.execute(_sum_up(connection.dialect.name), row)


@cache
def _sum_up(dialect: str) -> Any:
    statement = upsert(dialect, model_totals)
    old, new = model_totals.c, statement.excluded
    counts = {name: old[name] + new[name] for name in (*TOKEN_KINDS, "unpriced_tokens")}
    sums = {**counts, "cost_nano": _sum_of_costs(old, new)}
    return statement.on_conflict_do_update(index_elements=["agent", "model", "observed"], set_=sums)


def _sum_of_costs(old: Any, new: Any) -> ColumnElement[int]:
    # NULL + n is NULL: keep the side that has a price
    return sa.func.coalesce(old.cost_nano + new.cost_nano, old.cost_nano, new.cost_nano)


def count_failure(
    connection: Connection, agent: str, version: str | None, outcome: str, used: Usage, now: float
) -> None:
    """Add what an attempt that did not complete used to the failure totals. Estimates are left out."""
    if not used.source.observed or not used.tokens.total:
        return
    key = {"agent": agent, "agent_version": version or "", "outcome": outcome}
    priced = any(amount.cost_usd is not None for amount in used.by_model.values())
    amounts = {"tokens": used.tokens.total, "cost_nano": known_cost(used) if priced else None, "booked_at": now}
    statement = upsert(connection.dialect.name, failure_totals).values(**key, **amounts)
    old, new = failure_totals.c, statement.excluded
    sums = {"tokens": old.tokens + new.tokens, "cost_nano": _sum_of_costs(old, new)}
    latest = sa.case((new.booked_at > old.booked_at, new.booked_at), else_=old.booked_at)
    connection.execute(
        statement.on_conflict_do_update(index_elements=list(key), set_={**sums, "booked_at": latest})
    )


def count_outcome(connection: Connection, agent: str, outcome: str) -> None:
    """Count a turn among its agent's outcomes."""
    connection.execute(_count_up(connection.dialect.name), {"agent": agent, "outcome": outcome, "turns": 1})


@cache
def _count_up(dialect: str) -> Any:
    statement = upsert(dialect, outcome_totals)
    return statement.on_conflict_do_update(
        index_elements=["agent", "outcome"], set_={"turns": outcome_totals.c.turns + 1}
    )


def usage_of(connection: Connection, turn_id: str) -> dict[int, Usage]:
    """Return what each ended attempt of a turn used, by attempt."""
    rows = connection.execute(_BOOKED, {"of_turn": turn_id}).mappings()
    return {
        attempt: Usage(_by_model(booked), UsageSource(name), complete)
        for (attempt, name, complete), booked in groupby(rows, itemgetter(*_SOURCE))
    }


def _by_model(rows: Iterable[RowMapping]) -> dict[str, ModelUsage]:
    """Return an attempt's usage by model; one that used nothing has a single row, without a model."""
    return {
        row["model"]: ModelUsage(Tokens(**{kind: row[kind] for kind in TOKEN_KINDS}), dollars(row["cost_nano"]))
        for row in rows
        if row["model"] is not None
    }
