"""What attempts used: booked once each, together with the running totals."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, RowMapping

from adapters.usage import ModelUsage, Tokens, Usage, UsageSource
from ops.ledger import budgets
from ops.ledger.database import upsert
from ops.ledger.money import dollars, nano
from ops.ledger.records import AttemptEnd
from ops.ledger.schema import TOKEN_KINDS, attempts, model_totals, outcome_totals, usage

# Made once, as in `turn_rows`.
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
_USED = usage.insert()


def book(connection: Connection, turn_id: str, agent: str, ended: AttemptEnd, now: float) -> bool:
    """Book an attempt of a turn that is locked. Its end is written first: it can be written only once."""
    end = {
        "ended_at": now,
        "outcome": ended.outcome,
        "exit_code": ended.exit_code,
        "usage_source": ended.usage.source,
        "usage_complete": ended.usage.complete,
    }
    told = {"told_session": ended.session_id, "told_version": ended.agent_version}
    this = {"of_turn": turn_id, "number": ended.attempt, **told}
    if connection.execute(_END_ONCE, {**this, **end}).rowcount == 0:
        return False
    enter(connection, turn_id, ended.attempt, agent, ended.usage)
    budgets.settle(connection, turn_id, ended.attempt, known_cost(ended.usage), now)
    return True


def enter(connection: Connection, turn_id: str, attempt: int, agent: str, used: Usage) -> None:
    """Write down what an attempt used, and add it to the totals."""
    observed = used.source.observed
    for model, amount in sorted(used.by_model.items()):  # sorted: two bookings lock totals in one order
        row = {"turn_id": turn_id, "attempt": attempt, "model": model, "observed": observed}
        connection.execute(_USED, {**row, **_amounts(amount)})
        _add_to_totals(connection, {"agent": agent, "model": model, "observed": observed}, amount)


def known_cost(used: Usage) -> int:
    """What is known of the cost, in nano dollars: models without a price are left out."""
    return sum(nano(amount.cost_usd) or 0 for amount in used.by_model.values())


def _amounts(used: ModelUsage) -> dict[str, int | None]:
    return {**{kind: getattr(used.tokens, kind) for kind in TOKEN_KINDS}, "cost_nano": nano(used.cost_usd)}


def _add_to_totals(connection: Connection, key: dict[str, Any], used: ModelUsage) -> None:
    unpriced = used.tokens.total if used.cost_usd is None else 0
    statement = upsert(connection, model_totals).values(**key, **_amounts(used), unpriced_tokens=unpriced)
    old, new = model_totals.c, statement.excluded
    counts = {name: old[name] + new[name] for name in (*TOKEN_KINDS, "unpriced_tokens")}
    # NULL + n is NULL: keep the side that has a price
    cost = sa.func.coalesce(old.cost_nano + new.cost_nano, old.cost_nano, new.cost_nano)
    connection.execute(
        statement.on_conflict_do_update(index_elements=list(key), set_={**counts, "cost_nano": cost})
    )


def count_outcome(connection: Connection, agent: str, outcome: str) -> None:
    """Add a turn to its agent's outcomes."""
    statement = upsert(connection, outcome_totals).values(agent=agent, outcome=outcome, turns=1)
    connection.execute(
        statement.on_conflict_do_update(
            index_elements=["agent", "outcome"], set_={"turns": outcome_totals.c.turns + 1}
        )
    )


def usage_of(connection: Connection, turn_id: str) -> dict[int, Usage]:
    """What each ended attempt of a turn used. One query: an amendment is in it as a whole or not at all."""
    source = ("attempt", "usage_source", "usage_complete")
    amounts = ("model", *TOKEN_KINDS, "cost_nano")
    query = (
        sa.select(*(attempts.c[name] for name in source), *(usage.c[name] for name in amounts))
        .select_from(attempts.outerjoin(usage))
        .where(attempts.c.turn_id == turn_id, attempts.c.ended_at.is_not(None))
        .order_by(attempts.c.attempt, usage.c.model)
    )
    rows = connection.execute(query).mappings()
    return {
        attempt: Usage(_by_model(booked), UsageSource(name), complete)
        for (attempt, name, complete), booked in groupby(rows, itemgetter(*source))
    }


def _by_model(rows: Iterable[RowMapping]) -> dict[str, ModelUsage]:
    """The usage of an attempt; one that used nothing has a single row, without a model."""
    return {
        row["model"]: ModelUsage(Tokens(**{kind: row[kind] for kind in TOKEN_KINDS}), dollars(row["cost_nano"]))
        for row in rows
        if row["model"] is not None
    }
