"""Error messages of turns that a budget does not allow to start."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime

from adapters.errors import BudgetExceeded
from ops.ledger import Budget, OverBudget, Period

PER = {Period.DAY: "a day", Period.WEEK: "a week", Period.MONTH: "a month", Period.TOTAL: "in total"}


def exceeded(over: OverBudget) -> BudgetExceeded:
    """Return the turn's error: which budget, its state, and what to do."""
    budget = over.budget
    limit, spent, reserved, wanted = usd(budget.limit_usd, budget.spent_usd, budget.reserved_usd, over.wanted_usd)
    stand = (
        f"budget {budget.name}={budget.value} allows {limit} {PER[budget.period]}: {spent} spent, "
        f"{reserved} reserved by running turns, and this turn would reserve {wanted}"
    )
    label = shlex.quote(f"{budget.name}={budget.value}")
    advice = f"raise the budget: runturn budget set {label} USD --per {budget.period}"
    return BudgetExceeded(f"{stand}; {_otherwise(budget, over.wanted_usd)}{advice}")


def _otherwise(budget: Budget, wanted_usd: float) -> str:
    if wanted_usd > budget.limit_usd:
        return "lower the turn's max_cost_usd, or "
    if budget.resets_at is None:
        return ""
    return f"queue the turn again after {moment(budget.resets_at)}, when the next {budget.period} begins, or "


def usd(*amounts: float) -> list[str]:
    """Format US dollars to the cent, or all to four decimals if one has a fraction of a cent."""
    places = 2 if all(round(amount, 2) == amount for amount in amounts) else 4
    return [f"${amount:,.{places}f}" for amount in amounts]


def moment(at: float) -> str:
    """Format a time for people, in UTC as budgets use it."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")
