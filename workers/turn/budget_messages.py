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
    stand = (
        f"budget {budget.name}={budget.value} allows {usd(budget.limit_usd)} {PER[budget.period]}: "
        f"{usd(budget.spent_usd)} spent, {usd(budget.reserved_usd)} reserved by running turns, "
        f"and this turn would reserve {usd(over.wanted_usd)}"
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


def usd(amount: float) -> str:
    """Format US dollars to the cent, or to four decimals if there is a fraction of a cent."""
    return f"${amount:,.2f}" if round(amount, 2) == amount else f"${amount:,.4f}"


def moment(at: float) -> str:
    """Format a time for people, in UTC as budgets use it."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")
