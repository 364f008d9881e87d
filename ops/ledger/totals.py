"""The running totals: everything ever booked, by model and by outcome."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import Connection

from adapters.usage import Tokens
from ops.ledger.money import dollars
from ops.ledger.schema import TOKEN_KINDS, model_totals, outcome_totals


@dataclass(frozen=True, slots=True)
class ModelTotals:
    """Everything ever booked for one model of one agent."""

    agent: str
    model: str
    observed: bool  # False: these are estimates, with those that were replaced since
    tokens: Tokens
    cost_usd: float | None  # of what has a price; None: nothing has
    unpriced_tokens: int


@dataclass(frozen=True, slots=True)
class OutcomeTotals:
    """How often turns of an agent ended that way."""

    agent: str
    outcome: str  # "completed" or an error kind
    turns: int


@dataclass(frozen=True, slots=True)
class Totals:
    """Running totals: they only ever grow, and survive every crash."""

    models: tuple[ModelTotals, ...]
    outcomes: tuple[OutcomeTotals, ...]


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
