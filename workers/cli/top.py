"""The command `top`: running turns with host, age and cost, redrawn every few seconds."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ops.errors import LedgerUnavailable
from ops.ledger import Spending
from workers.cli.context import Context, pass_context
from workers.cli.options import json_option
from workers.cli.output import money, number, print_json, printable
from workers.cli.top_data import HostLine, Overview, Survey, TurnLine
from workers.turn.budget_messages import usd

_MOST = 100  # turns, without a screen to fill
_FIXED_LINES = 8  # of the screen, other than hosts, budgets and turns
_UNLIMITED = 100_000  # columns: without a terminal, no row is cut
_SHORT_ID = 12  # characters, on a terminal; history and --json print full ids
_SILENT_S = 60.0  # idle time from which a turn is highlighted


@click.command()
@click.option(
    "--interval",
    type=click.FloatRange(min=0.2),
    default=2.0,
    show_default=True,
    metavar="S",
    help="Seconds between updates.",
)
@click.option("--once", is_flag=True, help="Print once, as plain text.")
@json_option
@pass_context
def top(context: Context, interval: float, once: bool, as_json: bool) -> int:
    """Show running turns, the queue and spending, until q or Ctrl-C.

    Reads only the ledger; needs no broker and no worker. Without a terminal, prints once.
    """
    slots = {host.name: host.max_concurrent_agents for host in context.settings.ssh_hosts}
    known = {name: count for name, count in slots.items() if count is not None}
    survey = Survey(context.ledger, context.price, known)
    if as_json:
        print_json(asdict(survey.look(time.time(), _MOST)))
    elif once or not sys.stdout.isatty():
        Console(width=_UNLIMITED, highlight=False).print(_drawn(survey.look(time.time(), _MOST), short=False))
    else:
        _watch(survey, interval)
    return 0


def _watch(survey: Survey, interval: float) -> None:
    """Redraw until the user quits. While the ledger is unavailable, keep the last picture and show the error."""
    picture: RenderableType = Text("")
    with (
        contextlib.suppress(KeyboardInterrupt),
        _keys() as pressed,
        Live(picture, console=Console(highlight=False), screen=True, auto_refresh=False) as live,
    ):
        while True:
            try:
                picture = _drawn(survey.look(time.time(), _room(survey)), short=True)
                live.update(picture, refresh=True)
            except LedgerUnavailable as error:
                live.update(Group(Text(f"{error}", style="red"), picture), refresh=True)
            if pressed(interval) in ("q", "Q"):
                return


def _room(survey: Survey) -> int:
    """Return how many turns fit on the screen next to the configured hosts."""
    return max(5, shutil.get_terminal_size().lines - _FIXED_LINES - len(survey.slots))


@contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """Yield a function that waits for a key. Turn echo off, and restore the terminal afterwards."""
    if not sys.stdin.isatty():
        yield _sleep
        return
    stdin = sys.stdin.fileno()
    before = termios.tcgetattr(stdin)
    tty.setcbreak(stdin)
    try:
        yield lambda patience_s: _key(stdin, patience_s)
    finally:
        termios.tcsetattr(stdin, termios.TCSADRAIN, before)


def _key(stdin: int, patience_s: float) -> str:
    ready, _, _ = select.select([stdin], [], [], patience_s)
    return os.read(stdin, 1).decode(errors="replace") if ready else ""


def _sleep(patience_s: float) -> str:
    time.sleep(patience_s)
    return ""


def _drawn(overview: Overview, *, short: bool) -> RenderableType:
    return Group(
        *_summary(overview), Text(""), _hosts(overview), Text(""), _turns(overview, short=short), _rest(overview)
    )


def _summary(overview: Overview) -> Iterator[Text]:
    clock = time.strftime("%H:%M:%S", time.localtime(overview.at))
    waits = f" (oldest: {_span(overview.oldest_wait_s)})" if overview.oldest_wait_s is not None else ""
    parked = ", ".join(f"{count} {reason}" for reason, count in overview.parked.items())
    letters = ("bold red" if overview.dead_letters else "dim", f"dead letters {number(overview.dead_letters)}")
    yield Text.assemble(
        (f"runturn {clock}", "bold"),
        f" · {number(overview.running_turns)} running · {number(overview.ready_turns)} ready{waits}",
        f" · parked: {parked or 'none'} · ",
        (letters[1], letters[0]),
    )
    yield Text(f"last hour {_spent(overview.last_hour)} · today (UTC) {_spent(overview.today)}")
    for budget in overview.budgets:
        full = budget.spent_usd + budget.reserved_usd >= budget.limit_usd
        reserved = f" + {usd(budget.reserved_usd)} reserved" if budget.reserved_usd else ""
        yield Text(
            f"budget {budget.name}={budget.value}/{budget.period}: "
            f"{usd(budget.spent_usd)}{reserved} of {usd(budget.limit_usd)}",
            style="red" if full else "",
        )


def _spent(spending: Spending) -> str:
    unpriced = f" (excluding {number(spending.unpriced_tokens)} unpriced)" if spending.unpriced_tokens else ""
    cost = "$0" if not spending.tokens else money(spending.cost_usd)
    return f"{cost}{unpriced}, {number(spending.tokens)} tokens"


def _hosts(overview: Overview) -> Table:
    table = _table(("host", "left"), ("slots", "right"), ("seen", "right"))
    for host in overview.hosts:
        table.add_row(host.name, _slots(host), "" if host.seen_s is None else f"{_span(host.seen_s)} ago")
    return table


def _slots(host: HostLine) -> Text:
    if host.slots is None:
        return Text(number(host.slots_in_use))
    full = host.slots_in_use >= host.slots
    return Text(f"{host.slots_in_use}/{host.slots}", style="yellow" if full else "")


def _turns(overview: Overview, *, short: bool) -> Table:
    table = _table(
        ("turn", "left"), ("host", "left"), ("agent", "left"), ("producer", "left"), ("age", "right"),
        ("try", "right"), ("idle", "right"), ("tokens", "right"), ("cost", "right"), ("doing", "left"),
    )  # fmt: skip
    for turn in overview.turns:
        table.add_row(*_turn(turn, short=short))
    return table


def _turn(turn: TurnLine, *, short: bool) -> Iterator[Text]:
    at_least = "" if turn.exact else "≥ "
    yield Text(turn.turn_id[:_SHORT_ID] if short else turn.turn_id)
    yield Text(turn.host or "")
    yield Text(turn.agent)
    yield Text(printable(turn.producer))
    yield Text(_span(turn.age_s))
    yield Text(str(turn.attempt))
    silent = turn.idle_s is not None and turn.idle_s >= _SILENT_S
    yield Text("" if turn.idle_s is None else _span(turn.idle_s), style="yellow" if silent else "")
    yield Text(f"{at_least}{number(turn.tokens)}" if turn.tokens else "")
    yield Text(f"{at_least if turn.cost_usd is not None else ''}{money(turn.cost_usd)}" if turn.tokens else "")
    if turn.followed:
        yield Text(printable(turn.doing).replace("\n", " "))
    else:
        yield Text("no worker follows it", style="red")


def _rest(overview: Overview) -> Text:
    hidden = overview.running_turns - len(overview.turns)
    return Text(f"… and {number(hidden)} more" if hidden > 0 else "", style="dim")


def _table(*columns: tuple[str, str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, side in columns:
        table.add_column(name, justify="right" if side == "right" else "left", no_wrap=True)
    return table


def _span(seconds: float) -> str:
    """Format a duration for people, in its two largest units."""
    whole = int(seconds)
    for unit, size, less, smaller in (("d", 86_400, "h", 3_600), ("h", 3_600, "m", 60), ("m", 60, "s", 1)):
        if whole >= size:
            return f"{whole // size}{unit} {whole % size // smaller}{less}"
    return f"{whole}s"
