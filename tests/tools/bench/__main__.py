"""Run the benchmarks. Prints a table, then one JSON object of all rows as the last line.

Exits with 0 if every goal is met, else with 1. Name benchmarks as arguments to run only those; an unknown name
exits with 2.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import orjson
from rich.console import Console
from rich.table import Table

from tests.tools.bench.capacity import capacity_check
from tests.tools.bench.flood import flood
from tests.tools.bench.fold import fold_rate
from tests.tools.bench.gateway import gateway_overhead
from tests.tools.bench.growth import drained_turns, queued_turns, settled_turns
from tests.tools.bench.isolation import contained_start
from tests.tools.bench.latency import first_event_latency
from tests.tools.bench.overhead import overhead
from tests.tools.bench.rows import Rows
from tests.tools.bench.sdk import hook_round_trip, sdk_turn
from tests.tools.bench.ssh import ssh_start, ssh_throughput
from tests.tools.bench.thousand import thousand_turns

# To add a bench: write a function that returns its rows, and name it here.
BENCHES: list[Callable[[], Rows]] = [
    fold_rate,
    first_event_latency,
    contained_start,
    gateway_overhead,
    ssh_start,
    ssh_throughput,
    sdk_turn,
    hook_round_trip,
    capacity_check,
    overhead,
    thousand_turns,
    flood,
    drained_turns,
    settled_turns,
    queued_turns,
]


def main(wanted: list[str]) -> int:
    """Run the benchmarks with these names, or all; return the exit status."""
    names = [bench.__name__ for bench in BENCHES]
    if unknown := [name for name in wanted if name not in names]:
        print(f"bench: no such benchmark: {', '.join(unknown)}; choose from: {', '.join(names)}", file=sys.stderr)
        return 2
    rows: Rows = {}
    for bench in BENCHES:
        if not wanted or bench.__name__ in wanted:
            rows |= bench()
    Console(width=100).print(_table(rows))
    print(orjson.dumps(rows).decode(), flush=True)
    return 0 if all(row["holds"] for row in rows.values()) else 1


def _table(rows: Rows) -> Table:
    table = Table("bench", "median", "unit", "goal", "")
    for name, row in rows.items():
        verdict = "" if not row["goal"] else "met" if row["holds"] else "MISSED"
        table.add_row(name, f"{row['value']:,.2f}", row["unit"], row["goal"], verdict)
    return table


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
