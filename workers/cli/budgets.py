"""The command `budget`: spending limits for turns with a label."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, TypeVar

import click
from pydantic import Field, TypeAdapter, ValidationError

from adapters.errors import InvalidRequest
from adapters.protocol.request import Label, Name
from adapters.protocol.validation_errors import invalid
from ops.ledger import Budget, BudgetKey, Period
from workers.cli.context import Context, pass_context
from workers.cli.options import json_option, pair
from workers.cli.output import Column, print_json, print_table
from workers.turn.budget_messages import PER, moment, usd

_BUDGETS = (
    Column("budget"),
    Column("per"),
    *(Column(name, right=True) for name in ("limit", "spent", "reserved", "left")),
    Column("resets"),
)
_RESERVE_USD = 1.0  # default; a lower limit caps it

_NAME: TypeAdapter[str] = TypeAdapter(Name)
_VALUE: TypeAdapter[str] = TypeAdapter(Label)
# Within these bounds, sums in billionths do not overflow and no amount rounds to zero.
_LIMIT: TypeAdapter[float] = TypeAdapter(Annotated[float, Field(ge=0.0001, le=10_000_000, allow_inf_nan=False)])
_RESERVE: TypeAdapter[float] = TypeAdapter(Annotated[float, Field(ge=0.0001, le=10_000, allow_inf_nan=False)])

T = TypeVar("T")

_label_argument = click.argument("label", metavar="LABEL=VALUE")
_per_option = click.option(
    "--per",
    "period",
    type=click.Choice([period.value for period in Period]),
    required=True,
    help="Budget period. Days, weeks (from Monday) and months start at 00:00 UTC; a total never resets.",
)


@click.group()
def budget() -> None:
    """Limit what turns with a given label may cost.

    When a turn starts, it reserves its max_cost_usd, or else the --reserve of its label's budget. If less than
    that is left, it fails with budget_exceeded and no agent starts.
    """


@budget.command("set")
@_label_argument
@click.argument("amount", metavar="USD", type=float)
@_per_option
@click.option(
    "--reserve",
    type=float,
    metavar="USD",
    help="Reserved for each running turn without max_cost_usd. [default: 1, or the budget if lower]",
)
@pass_context
def set_budget(context: Context, label: str, amount: float, period: str, reserve: float | None) -> int:
    """Create or change a budget.

    Spending so far in the current period counts.
    """
    key = _key(label, period)
    limit = _checked(_LIMIT, amount, "USD")
    each = min(_RESERVE_USD, limit) if reserve is None else _checked(_RESERVE, reserve, "reserve")
    if each > limit:
        raise InvalidRequest(f"exceeds the whole budget of {usd(limit)[0]}", field="reserve")
    now = context.ledger.budgets.put(key, limit, each, context.ledger.clock())
    allowed, spent, reserved = usd(now.limit_usd, now.spent_usd, now.reserved_usd)
    click.echo(f"{_name(now)}: {allowed} {PER[now.period]}, {spent} spent, {reserved} reserved")
    return 0


@budget.command("list")
@json_option
@pass_context
def list_budgets(context: Context, as_json: bool) -> int:
    """List all budgets and what is left of each."""
    rows = context.ledger.budgets.all_of(context.ledger.clock())
    if as_json:
        print_json([asdict(row) for row in rows])
        return 0
    print_table(_BUDGETS, map(_row, rows), "no budgets")
    return 0


@budget.command("remove")
@_label_argument
@_per_option
@pass_context
def remove_budget(context: Context, label: str, period: str) -> int:
    """Remove a budget; its turns keep running."""
    key = _key(label, period)
    if not context.ledger.budgets.remove(key):
        raise InvalidRequest(f"{label} has no budget per {period}; see runturn budget list", field="label")
    return 0


def _key(label: str, period: str) -> BudgetKey:
    name, value = pair(label, "label")
    return BudgetKey(_checked(_NAME, name, "label"), _checked(_VALUE, value, "label"), Period(period))


def _checked(adapter: TypeAdapter[T], value: T, field: str) -> T:
    """Return the value if it is within bounds. Raise InvalidRequest naming the field if not."""
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        raise invalid(error, field) from error


def _row(row: Budget) -> tuple[str, ...]:
    left = max(row.limit_usd - row.spent_usd - row.reserved_usd, 0.0)
    anew = moment(row.resets_at) if row.resets_at is not None else "never"
    return (
        _name(row),
        row.period,
        *(f"${amount:,.4f}" for amount in (row.limit_usd, row.spent_usd, row.reserved_usd, left)),
        anew,
    )


def _name(row: Budget) -> str:
    return f"{row.name}={row.value}"
