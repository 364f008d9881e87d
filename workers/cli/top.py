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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ops.errors import LedgerUnavailable
from ops.ledger import Spending
from workers.cli.context import Context, pass_context
from workers.cli.options import json_option
from workers.cli.output import (
    UNLIMITED,
    Column,
    counted,
    labelled,
    money,
    number,
    print_json,
    printable,
    short_ids,
    table,
)
from workers.cli.top_data import HostLine, Overview, Survey, TurnLine
from workers.turn.budget_messages import usd

_MOST = 100  # turns, without a screen to fill
_FIXED_LINES = 8  # of the screen, other than hosts, budgets and turns
_SILENT_S = 60.0  # idle time from which a turn is highlighted
_HOSTS = (
    Column("host"),
    Column("slots", right=True),
    Column("seen", right=True),
    Column("CPU in last hour", right=True),
    Column("peak memory", right=True),
)
_TURNS = (
    Column("turn"),
    Column("host", spare=4),
    Column("agent", spare=3),
    Column("producer", spare=2),
    Column("age", right=True),
    Column("try", right=True, spare=1),
    Column("idle", right=True, spare=6),
    Column("tokens", right=True, spare=5),
    Column("cost", right=True),
    Column("doing", least=16),
    Column("labels", least=10),
    Column("prompt", least=16),
)


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
    clock, survey = context.ledger.clock.read, Survey(context.ledger, context.price, context.beginnings, known)
    if as_json:
        print_json(asdict(survey.look(clock(), _MOST)))
    elif once or not sys.stdout.isatty():
        Console(width=UNLIMITED, highlight=False).print(_drawn(survey.look(clock(), _MOST), UNLIMITED))
    else:
        _watch(survey, clock, interval)
    return 0


def _watch(survey: Survey, clock: Callable[[], float], interval: float) -> None:
    """Redraw until the user quits. While the ledger is unavailable, keep the last picture and show the error."""
    picture: RenderableType = Text("")
    with (
        contextlib.suppress(KeyboardInterrupt),
        _keys() as pressed,
        Live(picture, console=Console(highlight=False), screen=True, auto_refresh=False) as live,
    ):
        while True:
            try:
                screen = shutil.get_terminal_size()
                overview = _fitted(survey.look(clock(), screen.lines), screen.lines)
                picture = _drawn(overview, screen.columns)
                live.update(picture, refresh=True)
            except LedgerUnavailable as error:
                live.update(Group(Text(f"{error}", style="red"), picture), refresh=True)
            if pressed(interval) in ("q", "Q"):
                return


def _fitted(overview: Overview, lines: int) -> Overview:
    """Return the overview with as many turns as fit on the screen below the hosts and budgets."""
    room = max(5, lines - _FIXED_LINES - len(overview.hosts) - len(overview.budgets))
    return replace(overview, turns=overview.turns[:room])


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


def _drawn(overview: Overview, width: int) -> RenderableType:
    return Group(
        *_summary(overview), Text(""), _hosts(overview, width), Text(""), _turns(overview, width), _rest(overview)
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
        spent, reserved, limit = usd(budget.spent_usd, budget.reserved_usd, budget.limit_usd)
        held = f" + {reserved} reserved" if budget.reserved_usd else ""
        yield Text(
            f"budget {budget.name}={budget.value}/{budget.period}: {spent}{held} of {limit}",
            style="red" if full else "",
        )


def _spent(spending: Spending) -> str:
    unpriced = f" (excluding {number(spending.unpriced_tokens)} unpriced)" if spending.unpriced_tokens else ""
    cost = "$0" if not spending.tokens else money(spending.cost_usd)
    return f"{cost}{unpriced}, {counted(spending.tokens, 'token')}"


def _hosts(overview: Overview, width: int) -> Table:
    return table(_HOSTS, map(_host, overview.hosts), width)


def _host(host: HostLine) -> tuple[str | Text, ...]:
    seen = "" if host.seen_s is None else f"{_span(host.seen_s)} ago"
    cpu = "" if host.cpu_s is None else _span(host.cpu_s)
    memory = "" if host.peak_memory_bytes is None else f"{number(host.peak_memory_bytes // 2**20)} MiB"
    return host.name, _slots(host), seen, cpu, memory


def _slots(host: HostLine) -> Text:
    if host.slots is None:
        return Text(number(host.slots_in_use))
    full = host.slots_in_use >= host.slots
    return Text(f"{host.slots_in_use}/{host.slots}", style="yellow" if full else "")


def _turns(overview: Overview, width: int) -> Table:
    names = short_ids(turn.turn_id for turn in overview.turns) if width < UNLIMITED else {}
    return table(_TURNS, (list(_turn(turn, names)) for turn in overview.turns), width)


def _turn(turn: TurnLine, names: Mapping[str, str]) -> Iterator[Text]:
    at_least = "" if turn.exact else "≥ "
    yield Text(names.get(turn.turn_id, turn.turn_id))
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
    yield Text(labelled(turn.labels))
    yield Text(turn.prompt or "")


def _rest(overview: Overview) -> Text:
    hidden = overview.running_turns - len(overview.turns)
    return Text(f"… and {number(hidden)} more" if hidden > 0 else "", style="dim")


def _span(seconds: float) -> str:
    """Format a duration for people, in its two largest units."""
    whole = int(seconds)
    for unit, size, less, smaller in (("d", 86_400, "h", 3_600), ("h", 3_600, "m", 60), ("m", 60, "s", 1)):
        if whole >= size:
            return f"{whole // size}{unit} {whole % size // smaller}{less}"
    return f"{whole}s"
