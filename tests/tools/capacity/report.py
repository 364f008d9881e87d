"""The tables that `python -m tests.tools.capacity` prints; docs/capacity.md shows them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tests.tools.capacity.arrivals import burst, poisson, together
from tests.tools.capacity.costs import GIB, MIB, costs
from tests.tools.capacity.figures import Figures, Waits, measure
from tests.tools.capacity.lengths import Lengths, LogNormal
from tests.tools.capacity.simulation import Fleet, simulate
from tests.tools.capacity.theory import mean_wait_s

WARM_UP = 8  # mean lengths until an initially empty fleet is as busy as it gets
MEASURED = 100_000  # minimum turns: near full load, waits vary for a long time
HOSTS = (1, 10, 100, 1_000, 10_000)
LOADS = (0.7, 0.9, 0.97)
TURN = LogNormal(300.0, cv=1.5)
SLOTS = 4
WORKER_TURNS = 1_000  # that one worker follows

_WAITS = ("wait mean", "p50", "p95", "p99")


@dataclass(frozen=True, slots=True)
class Table:
    """Rows below a title, as Markdown."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def __str__(self) -> str:
        widths = [max(map(len, column)) for column in zip(self.columns, *self.rows, strict=True)]
        lines = [self.columns, ["-" * (width - 1) + ":" for width in widths], *self.rows]
        rows = ("| " + " | ".join(map(str.rjust, line, widths)) + " |" for line in lines)
        return "\n".join([self.title, "", *rows])


def a_fleet(hosts: int, slots: int = SLOTS) -> Fleet:
    """Return a fleet with as many workers as it needs."""
    return Fleet(hosts, slots, workers=math.ceil(hosts * slots / WORKER_TURNS))


def steady(fleet: Fleet, per_s: float, lengths: Lengths, seed: int) -> Figures:
    """Return the figures of a fleet in steady state."""
    start = WARM_UP * lengths.mean_s
    end = start + max(MEASURED / per_s, 2 * lengths.mean_s)
    return measure(simulate(fleet, poisson(per_s, lengths, end, seed), seed), fleet, start, end)


def sizes(seed: int, hosts: Iterable[int] = HOSTS) -> Table:
    """Return the waits by fleet size and load."""
    rows = [_size(count, load, seed) for count in hosts for load in LOADS]
    columns = ("hosts", "turns/h", "load", "used", *_WAITS, "theory")
    return Table(
        f"Turns of {TURN.mean_s:g} s on average (log-normal, cv {TURN.cv:g}), {SLOTS} slots per host; waits in "
        "seconds. Load is the share of slots that turns demand; theory is the mean wait that queueing "
        "theory predicts.",
        columns,
        rows,
    )


def _size(hosts: int, load: float, seed: int) -> list[str]:
    fleet = a_fleet(hosts)
    per_s = load * fleet.total / (TURN.mean_s + fleet.overhead_s)
    return [f"{hosts:,}", _per_hour(per_s), f"{load:.0%}", *_steady(fleet, per_s, TURN, seed)]


def _steady(fleet: Fleet, per_s: float, lengths: Lengths, seed: int) -> list[str]:
    """Return the utilisation, the waits, and the wait that theory predicts."""
    figures = steady(fleet, per_s, lengths, seed)
    theory = mean_wait_s(fleet.total, per_s, lengths.mean_s + fleet.overhead_s, lengths.cv)
    return [f"{figures.utilisation:.0%}", *_waits(figures.waits), _seconds(theory)]


def own(fleet: Fleet, per_s: float, lengths: Lengths, seed: int) -> Table:
    """Return the table of one planned fleet."""
    most_per_s = fleet.total / (lengths.mean_s + fleet.overhead_s)
    asked = [f"{fleet.hosts:,}", str(fleet.slots), _per_hour(per_s)]
    if per_s >= most_per_s:
        title = f"Too many turns: the load is {per_s / most_per_s:.0%}; the queue grows without bound."
        return Table(title, ("hosts", "slots", "turns/h", "max turns/h"), [[*asked, _per_hour(most_per_s)]])
    title = f"Turns of {lengths.mean_s:g} s on average (log-normal, cv {lengths.cv:g}); waits in seconds."
    columns = ("hosts", "slots", "turns/h", "used", *_WAITS, "theory")
    return Table(title, columns, [[*asked, *_steady(fleet, per_s, lengths, seed)]])


def producers(seed: int) -> Table:
    """Return the waits of two producers on one fleet: one sends a thousand turns, the other a few."""
    fleet, span = a_fleet(10), 8 * 3600.0
    turns = together(
        burst(1_000, TURN, seed, producer="nightly"),
        poisson(1 / 60, TURN, span, seed, producer="web"),
    )
    figures = measure(simulate(fleet, turns, seed), fleet, 0.0, span)
    rows = [[name, str(waits.turns), *_waits(waits)] for name, waits in figures.by_producer.items()]
    return Table(
        f"{fleet.hosts} hosts with {fleet.slots} slots each. `nightly` sends 1,000 turns at once, `web` one a "
        "minute on average; waits in seconds.",
        ("producer", "turns", *_WAITS),
        rows,
    )


def servers(hosts: Iterable[int] = HOSTS, load: float = LOADS[0]) -> Table:
    """Return the load on broker, ledger, event stream and workers by fleet size."""
    rows = [_server(count, load * SLOTS * count / TURN.mean_s, load * SLOTS * count) for count in hosts]
    columns = (
        "hosts", "turns/s", "running", "workers", "their cores", "their GiB", "ledger tx/s", "busy", "GiB/day",
        "TiB kept", "ledgers", "broker cmd/s", "brokers", "events MiB/s", "event brokers",
    )  # fmt: skip
    return Table(
        f"The servers that a fleet needs, at {load:.0%} load with turns of {TURN.mean_s:.0f} s on average.",
        columns,
        rows,
    )


def _server(hosts: int, per_s: float, running: float) -> list[str]:
    carried = costs(per_s, running)
    return [
        f"{hosts:,}",
        f"{per_s:,.2f}",
        f"{running:,.0f}",
        str(carried.workers),
        f"{carried.worker_cores:.2f}",
        f"{carried.worker_memory_bytes / GIB:.1f}",
        f"{carried.ledger_transactions_per_s:,.0f}",
        f"{carried.ledger_busy:.0%}",
        f"{carried.ledger_bytes_per_day / GIB:,.1f}",
        f"{carried.ledger_bytes / GIB / 1024:,.2f}",
        str(carried.ledgers),
        f"{carried.broker_commands_per_s:,.0f}",
        str(carried.brokers),
        f"{carried.event_bytes_per_s / MIB:,.2f}",
        str(carried.event_brokers),
    ]


def all_tables(seed: int) -> Iterator[Table]:
    """Yield the tables printed by default."""
    yield sizes(seed)
    yield producers(seed)
    yield servers()


def _waits(waits: Waits) -> list[str]:
    return [_seconds(each) for each in (waits.mean_s, waits.p50_s, waits.p95_s, waits.p99_s)]


def _per_hour(per_s: float) -> str:
    return f"{per_s * 3600:,.0f}"


def _seconds(seconds: float) -> str:
    return f"{seconds:,.1f}" if seconds >= 10 or seconds < 0.005 else f"{seconds:.2f}"
