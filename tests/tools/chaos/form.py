"""Size of a run, and number of faults to inject."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Form:
    """Size of a run. Times are in seconds; numbers of blows are for the whole storm."""

    turns: int  # of the agent `scripted`
    real: int  # of the real Claude Code
    others: int  # of each other kind: live, Codex, Gemini, with a workspace; and so many sessions of turns
    odd: int  # of each kind whose agent floods its turn with lines, or stops itself
    flood_lines: int  # a flood is so many lines of one letter
    calm_s: float  # before the first blow
    storm_s: float
    longest_s: float  # turn that is played
    lease_s: int
    worker_blows: int
    frozen_blows: int  # workers that stand still for longer than their claims last
    broker_blows: int
    ledger_blows: int
    ledger_away_s: float
    link_blows: int  # for each link; on every second link, one lasts longer than the lease
    long_cuts: bool
    host_blows: int  # for each host
    stop_blows: int  # supervisors, watchers and agents that are stopped
    forged_blows: int  # end markers and control files
    removal_blows: int  # spools of running turns
    disk_blows: int  # times that the disk of one host's spools is full
    clock_blows: int  # steps of a worker's clock
    watchers: int  # turns whose live events are followed all the time
    exit_s: float  # that a worker may take to leave when it is told to
    recovery_s: float  # that everything may take to come to its end afterwards

    def sized(self, turns: int | None, real: int | None, others: int | None) -> Form:
        """Return the same form with other numbers of turns, where given."""
        asked = {"turns": turns, "real": real, "others": others}
        return replace(self, **{name: number for name, number in asked.items() if number is not None})


FULL = Form(
    turns=200,
    real=20,
    others=6,
    odd=2,
    flood_lines=1_000_000,
    calm_s=15.0,
    storm_s=300.0,
    longest_s=60.0,
    lease_s=45,
    worker_blows=20,
    frozen_blows=3,
    broker_blows=12,
    ledger_blows=3,
    ledger_away_s=10.0,
    link_blows=4,
    long_cuts=True,
    host_blows=4,
    stop_blows=12,
    forged_blows=12,
    removal_blows=4,
    disk_blows=2,
    clock_blows=6,
    watchers=6,
    exit_s=5.0,
    recovery_s=600.0,
)

# In CI, where four of these may share two cores.
SHORT = Form(
    turns=34,
    real=4,
    others=0,
    odd=1,
    flood_lines=50_000,
    calm_s=1.0,
    storm_s=20.0,
    longest_s=8.0,
    lease_s=60,
    worker_blows=5,
    frozen_blows=0,
    broker_blows=3,
    ledger_blows=1,
    ledger_away_s=3.0,
    link_blows=2,
    long_cuts=False,
    host_blows=1,
    stop_blows=3,
    forged_blows=4,
    removal_blows=1,
    disk_blows=0,  # it must last too long
    clock_blows=2,
    watchers=2,
    exit_s=20.0,
    recovery_s=180.0,
)
