"""What a turn is told that a budget does not let start."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime

from adapters.errors import BudgetExceeded
from ops.ledger import Budget, OverBudget, Period

PER = {Period.DAY: "a day", Period.WEEK: "a week", Period.MONTH: "a month", Period.TOTAL: "in total"}


def exceeded(over: OverBudget) -> BudgetExceeded:
    """The turn's error: which budget, how it stands, and what to do."""
    budget = over.budget
    stand = (
        f"the budget {budget.name}={budget.value} is {usd(budget.limit_usd)} {PER[budget.period]}: "
        f"{usd(budget.spent_usd)} is spent, {usd(budget.reserved_usd)} reserved by running turns, "
        f"and this one would reserve {usd(over.wanted_usd)}"
    )
    label = shlex.quote(f"{budget.name}={budget.value}")
    advice = f"raise it with: runturn budget set {label} USD --per {budget.period}"
    return BudgetExceeded(f"{stand}; {_otherwise(budget, over.wanted_usd)}{advice}")


def _otherwise(budget: Budget, wanted_usd: float) -> str:
    if wanted_usd > budget.limit_usd:
        return "lower the turn's max_cost_usd, or "
    if budget.resets_at is None:
        return ""
    return f"queue the turn again from {moment(budget.resets_at)} on, when the next {budget.period} begins, or "


def usd(amount: float) -> str:
    """US dollars with cents, or with as much more as there is."""
    return f"${amount:,.2f}" if round(amount, 2) == amount else f"${amount:,.4f}"


def moment(at: float) -> str:
    """A time for people, in UTC as budgets have it."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")
