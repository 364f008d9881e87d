"""`python -m tests.tools.capacity`: how long turns wait, how busy hosts are, and the load on the servers."""

from __future__ import annotations

import click

from tests.tools.capacity.lengths import LogNormal
from tests.tools.capacity.report import SLOTS, TURN, a_fleet, all_tables, own


@click.command()
@click.option("--hosts", type=click.IntRange(min=1), help="Plan this fleet instead of printing the tables.")
@click.option("--slots", type=click.IntRange(min=1), default=SLOTS, show_default=True, help="Per host.")
@click.option("--per-hour", type=click.FloatRange(min=0, min_open=True), help="Turns per hour; needs --hosts.")
@click.option(
    "--seconds", type=click.FloatRange(min=0, min_open=True), default=TURN.mean_s, show_default=True,
    help="Mean length of a turn.",
)  # fmt: skip
@click.option(
    "--cv", type=click.FloatRange(min=0), default=TURN.cv, show_default=True,
    help="Variation of lengths: standard deviation over mean.",
)  # fmt: skip
@click.option(
    "--seed", default=1, show_default=True, help="Random seed; another one shows the influence of chance."
)
def main(hosts: int | None, slots: int, per_hour: float | None, seconds: float, cv: float, seed: int) -> None:
    """Simulate fleets; see docs/capacity.md on how to read the tables."""
    if (hosts is None) != (per_hour is None):
        raise click.UsageError("--hosts and --per-hour go together")
    if hosts is not None and per_hour is not None:
        click.echo(own(a_fleet(hosts, slots), per_hour / 3600, LogNormal(seconds, cv), seed))
        return
    for number, table in enumerate(all_tables(seed)):
        click.echo(f"{chr(10) if number else ''}{table}")


if __name__ == "__main__":
    main()
