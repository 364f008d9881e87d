"""Commands that read the ledger: history and cost."""

from __future__ import annotations

import time
from dataclasses import asdict

import click
from rich.text import Text

from adapters.protocol.result import Status
from ops.ledger import CostKey, CostRow, Spent, State, TurnRow
from workers.cli.context import Context, pass_context
from workers.cli.options import json_option, pair
from workers.cli.output import STYLES, money, number, print_json, print_table, printable

_DAY_S = 86_400
_STATUSES = [*(state.value for state in State if state is not State.SETTLED), *(end.value for end in Status)]


@click.command()
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, metavar="N", help="Show at most N."
)
@click.option("--status", type=click.Choice(_STATUSES), help="Only turns in this state or with this outcome.")
@click.option("--agent", metavar="NAME", help="Only turns of this agent.")
@click.option("--host", metavar="NAME", help="Only turns on this host.")
@click.option("--label", metavar="NAME=VALUE", help="Only turns with this label.")
@json_option
@pass_context
def history(
    context: Context,
    limit: int,
    status: str | None,
    agent: str | None,
    host: str | None,
    label: str | None,
    as_json: bool,
) -> int:
    """List turns, newest first."""
    wanted = pair(label, "label") if label else None
    rows = context.ledger.reports.history(limit, status=status, agent=agent, host=host, label=wanted)
    if as_json:
        print_json([asdict(row) for row in rows])
        return 0
    columns = ("turn", "state", "agent", "version", "host", "started", "took", "tokens", "cost")
    print_table(columns, (_history_row(row) for row in rows), right=("took", "tokens", "cost"))
    return 0


@click.command()
@click.option(
    "--by", type=click.Choice([key.value for key in CostKey]), default="model", show_default=True, help="Grouping."
)
@click.option(
    "--days",
    type=click.FloatRange(min=0, min_open=True),
    metavar="N",
    help="Only attempts that ended in the last N days. [default: all]",
)
@json_option
@pass_context
def cost(context: Context, by: str, days: float | None, as_json: bool) -> int:
    """Show token usage and cost.

    Estimated tokens are listed separately and excluded from totals. Unpriced tokens count as tokens, but not as
    cost. Grouped by outcome, each attempt counts under its own outcome; everything except `completed` was spent on
    failed attempts.
    """
    since = time.time() - days * _DAY_S if days is not None else None
    rows = context.ledger.reports.cost(CostKey(by), since)
    if as_json:
        print_json([asdict(row) for row in rows])
        return 0
    columns = (by, "turns", "input", "output", "cache read", "cache written", "cost", "unpriced", "estimated")
    print_table(columns, (_cost_row(row) for row in rows), right=columns[1:])
    return 0


def _history_row(row: TurnRow) -> tuple[str | Text, ...]:
    waits = f"{row.state}: {row.wait_reason}" if row.wait_reason else row.state
    state = row.error_kind or row.status or waits
    started = time.strftime("%m-%d %H:%M:%S", time.localtime(row.started_at)) if row.started_at else ""
    took = f"{row.settled_at - row.started_at:.1f} s" if row.started_at and row.settled_at else ""
    used = row.spent.tokens.total
    return (
        row.turn_id,
        Text(state, style=STYLES.get(row.status or "", "")),
        row.agent,
        printable(row.agent_version or ""),
        row.host or "",
        started,
        took,
        number(used) if used else "",
        _price(row.spent) if used else "",
    )


def _price(spent: Spent) -> str:
    partly = spent.cost_usd is not None and spent.unpriced_tokens
    return money(spent.cost_usd) + (" + unpriced" if partly else "")


def _cost_row(row: CostRow) -> tuple[str, ...]:
    spent = row.spent.tokens
    return (
        row.key,
        number(row.turns),
        number(spent.input_tokens),
        number(spent.output_tokens),
        number(spent.cache_read_input_tokens),
        number(spent.cache_creation_input_tokens),
        money(row.spent.cost_usd) if spent.total else "",
        number(row.spent.unpriced_tokens) if row.spent.unpriced_tokens else "",
        number(row.spent.estimated.total) if row.spent.estimated.total else "",
    )
