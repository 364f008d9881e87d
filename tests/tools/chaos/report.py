"""Report at the end: a table for people, a line of JSON for programs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import orjson
from rich.console import Console
from rich.table import Table

from tests.tools.chaos.audit import Audit
from tests.tools.chaos.form import Form

_WANTED = {
    "double_settled": 0,
    "duplicate_runs": 0,
    "processes_left": 0,
    "messages_left": 0,
    "continuations_lost": 0,
    "event_gaps": 0,
}


@dataclass(frozen=True, slots=True)
class Report:
    """Report of one run."""

    broker: str
    seed: int
    form: Form
    audit: Audit
    blows: list[str]
    exits_s: list[float]  # from SIGTERM to the exit, of all that were told
    attempts: int
    workers: int  # that were ever started
    spools: (
        int  # that could not be removed while their hosts were out of reach; who tidies these does it, in an hour
    )
    took_s: float

    @property
    def faults(self) -> list[str]:
        """Problems that the audit found."""
        return self.audit.faults


def show(reports: list[Report], console: Console) -> None:
    """Print the table, then the problems."""
    title = (
        f"chaos, seed {reports[0].seed}: {reports[0].form.turns} scripted turns, {reports[0].form.real} real, "
        f"{reports[0].form.others} of each other kind"
    )
    console.print(title)
    table = Table()
    table.add_column("")
    for report in reports:
        table.add_column(report.broker, justify="right")
    columns = [_rows(report) for report in reports]
    for name in dict.fromkeys(name for column in columns for name in column):
        table.add_row(name, *(column.get(name, "") for column in columns))
    console.print(table)
    for report in reports:
        for fault in report.faults:
            console.print(f"{report.broker}: {fault}", style="red", markup=False, highlight=False)


def last_line(reports: list[Report]) -> str:
    """Return the totals of all runs as JSON."""
    sums: Counter[str] = Counter()
    for report in reports:
        sums.update(report.audit.figures())
    return orjson.dumps({name: round(value, 9) for name, value in sums.items()}).decode()


def _rows(report: Report) -> dict[str, str]:
    rows = {
        name.replace("_", " "): f"{value:,.6f}" if isinstance(value, float) else f"{value:,}"
        for name, value in report.audit.figures().items()
    }
    rows["attempts"] = str(report.attempts)
    rows["workers"] = str(report.workers)
    rows["spools left to clean up"] = str(report.spools)
    for name, count in sorted(Counter(report.blows).items()):
        rows[name] = str(count)
    rows["slowest exit after SIGTERM"] = f"{max(report.exits_s, default=0.0):.1f} s"
    rows["took"] = f"{report.took_s:.0f} s"
    rows["verdict"] = "nothing lost" if not report.faults else f"{len(report.faults)} problems"
    return rows
