"""The running totals: everything ever booked, by model and by outcome, and the usage of failed attempts."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import Connection

from adapters.usage import Tokens
from ops.ledger.accounting.money import dollars
from ops.ledger.schema import TOKEN_KINDS, failure_totals, model_totals, outcome_totals


@dataclass(frozen=True, slots=True)
class ModelTotals:
    """Everything ever booked for one model of one agent."""

    agent: str
    model: str
    observed: bool  # False: estimates, including those replaced since
    tokens: Tokens
    cost_usd: float | None  # of what has a price; None: nothing has
    unpriced_tokens: int


@dataclass(frozen=True, slots=True)
class OutcomeTotals:
    """Number of an agent's turns with one outcome."""

    agent: str
    outcome: str  # "completed" or an error kind
    turns: int


@dataclass(frozen=True, slots=True)
class FailureTotals:
    """Usage of one agent version's attempts that ended with one error. Estimates are left out."""

    agent: str
    agent_version: str  # blank: unknown
    outcome: str  # an error kind
    tokens: int
    cost_usd: float | None  # of what has a price; None: nothing has
    booked_at: float  # the latest


@dataclass(frozen=True, slots=True)
class Totals:
    """Running totals: they only ever grow, and survive every crash."""

    models: tuple[ModelTotals, ...]
    outcomes: tuple[OutcomeTotals, ...]
    failures: tuple[FailureTotals, ...] = ()


def totals(connection: Connection) -> Totals:
    """Return the totals, for metrics."""
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
    return Totals(models, outcomes, _failures(connection))


def _failures(connection: Connection) -> tuple[FailureTotals, ...]:
    rows = connection.execute(sa.select(failure_totals)).mappings()
    return tuple(
        FailureTotals(
            agent=row["agent"],
            agent_version=row["agent_version"],
            outcome=row["outcome"],
            tokens=row["tokens"],
            cost_usd=dollars(row["cost_nano"]),
            booked_at=row["booked_at"],
        )
        for row in rows
    )
