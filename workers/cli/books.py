"""Commands that read the books: history and cost."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

import click

from adapters.usage import Tokens
from ops.ledger import CostKey, CostRow, Spent, TurnRow
from workers.cli.context import Context, pass_context
from workers.cli.show import money, print_json, print_table, tokens
from workers.cli.turns import json_option, pair

_DAY_S = 86_400


@click.command()
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True)
@click.option("--status", help="queued, running, waiting, completed, failed or cancelled.")
@click.option("--agent")
@click.option("--host")
@click.option("--label", metavar="NAME=VALUE")
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
    """List turns, the newest first."""
    wanted = pair(label, "label") if label else None
    rows = context.ledger.history(limit, status=status, agent=agent, host=host, label=wanted)
    if as_json:
        print_json([asdict(row) for row in rows])
        return 0
    print_table(
        ("turn", "state", "error", "agent", "host", "started", "took", "tokens", "cost"),
        (_history_row(row) for row in rows),
        right=("took", "tokens", "cost"),
    )
    return 0


@click.command()
@click.option(
    "--by", type=click.Choice([key.value for key in CostKey]), default="model", show_default=True, help="Grouping."
)
@click.option("--days", type=click.FloatRange(min=0, min_open=True), help="Only the last days. [default: all]")
@json_option
@pass_context
def cost(context: Context, by: str, days: float | None, as_json: bool) -> int:
    """What turns have cost. Estimates and unpriced tokens stand apart, they are in no sum."""
    since = time.time() - days * _DAY_S if days is not None else None
    rows = context.ledger.cost(CostKey(by), since)
    if as_json:
        print_json([asdict(row) for row in rows])
        return 0
    columns = (by, "turns", "input", "output", "cache read", "cache written", "cost", "unpriced", "estimated")
    print_table(columns, (_cost_row(row) for row in rows), right=columns[1:])
    return 0


COMMANDS = (history, cost)


def _history_row(row: TurnRow) -> tuple[Any, ...]:
    started = time.strftime("%m-%d %H:%M:%S", time.localtime(row.started_at)) if row.started_at else ""
    took = f"{row.settled_at - row.started_at:.1f} s" if row.started_at and row.settled_at else ""
    used = row.spent.tokens.total or row.spent.estimated.total
    price = _price(row.spent) if used else ""
    state = row.status or row.state
    return (
        row.turn_id,
        state,
        row.error_kind or "",
        row.agent,
        row.host or "",
        started,
        took,
        tokens(used),
        price,
    )


def _cost_row(row: CostRow) -> tuple[Any, ...]:
    spent: Tokens = row.spent.tokens
    return (
        row.key,
        row.turns,
        tokens(spent.input_tokens),
        tokens(spent.output_tokens),
        tokens(spent.cache_read_input_tokens),
        tokens(spent.cache_creation_input_tokens),
        _price(row.spent),
        tokens(row.spent.unpriced_tokens) if row.spent.unpriced_tokens else "",
        tokens(row.spent.estimated.total) if row.spent.estimated.total else "",
    )


def _price(spent: Spent) -> str:
    return money(spent.cost_usd)
