"""Commands that read the ledger: history and cost."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from typing import Any

import click
from rich.text import Text

from adapters.protocol.result import Status
from ops.ledger import CostKey, CostRow, Spent, State, TurnRow
from workers.cli.context import Context, pass_context
from workers.cli.options import json_option, pair
from workers.cli.output import (
    STYLES,
    Column,
    labelled,
    money,
    number,
    print_json,
    print_table,
    printable,
    short_ids,
)

_DAY_S = 86_400
_STATUSES = [*(state.value for state in State if state is not State.SETTLED), *(end.value for end in Status)]
_HISTORY = (
    Column("turn"),
    Column("status"),
    Column("reason", least=12),
    Column("agent", spare=4),
    Column("version", spare=1),
    Column("host", spare=2),
    Column("started", spare=7),
    Column("took", right=True, spare=5),
    Column("tokens", right=True, spare=3),
    Column("cost", right=True, spare=6),
    Column("labels", spare=8, least=10),
    Column("prompt", least=20),
)


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
    """List turns, newest first.

    Shows the beginning of each prompt, without secrets. On a terminal, shortens ids and omits what does not fit.
    """
    wanted = pair(label, "label") if label else None
    rows = context.ledger.reports.history(limit, status=status, agent=agent, host=host, label=wanted)
    ids = [row.turn_id for row in rows]
    prompts = context.beginnings(ids)
    if as_json:
        print_json([_document(row, prompts.get(row.turn_id)) for row in rows])
        return 0
    names = short_ids(ids) if sys.stdout.isatty() else {}
    cells = (_history_row(row, names.get(row.turn_id), prompts.get(row.turn_id, "")) for row in rows)
    print_table(_HISTORY, cells, "no turns")
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
    cost. With --by outcome, each attempt counts under its own outcome; everything except `completed` was spent on
    failed attempts.
    """
    since = context.ledger.clock() - days * _DAY_S if days is not None else None
    rows = context.ledger.reports.cost(CostKey(by), since)
    if as_json:
        print_json([asdict(row) for row in rows])
        return 0
    sums = ("turns", "input", "output", "cache read", "cache written", "cost", "unpriced", "estimated")
    columns = [Column(by), *(Column(name, right=True) for name in sums)]
    total = context.ledger.reports.total_cost(since) if rows else []
    print_table(columns, map(_cost_row, [*rows, *total]), "no usage")
    return 0


def _document(row: TurnRow, prompt: str | None) -> dict[str, Any]:
    fields = {name: value for name, value in asdict(row).items() if name != "state"}
    return fields | {"status": row.status or row.state, "prompt": prompt}


def _history_row(row: TurnRow, name: str | None, prompt: str) -> tuple[str | Text, ...]:
    started = time.strftime("%m-%d %H:%M", time.localtime(row.started_at)) if row.started_at else ""
    took = f"{row.settled_at - row.started_at:.1f} s" if row.started_at and row.settled_at else ""
    used = row.spent.tokens.total
    return (
        name or row.turn_id,
        Text(row.status or row.state, style=STYLES.get(row.status or "", "")),
        row.error_kind or row.wait_reason or "",
        row.agent,
        printable(row.agent_version or ""),
        row.host or "",
        started,
        took,
        number(used) if used else "",
        _price(row.spent) if used else "",
        labelled(row.labels),
        prompt,
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
