"""What a worker says of its machine's clock."""

from __future__ import annotations

from typing import cast

import pytest
from structlog.testing import capture_logs

from ops.ledger import Ledger, LedgerClock
from ops.ledger.schema import clocks
from workers.worker.clock_watch import ClockWatch


class Clock:
    """A ledger's clock, and by how much the machine's is ahead of it."""

    off_s = 0.0
    settled = True
    remedy = "set it right"
    idle = False

    def correct(self) -> None:
        """See `LedgerClock.correct`."""
        if self.idle:
            self.off_s = 0.0

    def look(self) -> None:
        """See `LedgerClock.look`."""


@pytest.mark.parametrize(
    ("off_s", "said"),
    [
        (4.9, None),
        (-4.9, None),
        (5.1, "this machine's clock is 5 s ahead of the ledger's: set it right"),
        (-3600.0, "this machine's clock is 3600 s behind the ledger's: set it right"),
    ],
)
def test_clock_that_is_off_by_more_than_five_seconds_is_a_problem(off_s: float, said: str | None) -> None:
    clock = Clock()
    clock.off_s = off_s
    assert ClockWatch(cast(LedgerClock, clock)).problem() == said


def test_change_is_logged_once() -> None:
    clock = Clock()
    watch = ClockWatch(cast(LedgerClock, clock))
    with capture_logs() as logs:
        for off_s in (0.0, 3600.0, 3600.0, 0.0, 0.0):
            clock.off_s = off_s
            watch.look()
        for settled in (False, False, True, False):
            clock.settled = settled
            watch.look()
    assert [entry["event"] for entry in logs] == [
        "this machine's clock is wrong",
        "this machine's clock is right again",
        "the ledger's clock was set; this worker takes no turns for a moment",
        "the ledger's clock was set; this worker takes no turns for a moment",
    ]


def test_ledgers_clock_is_corrected_by_an_idle_worker() -> None:
    clock = Clock()
    watch = ClockWatch(cast(LedgerClock, clock))
    clock.off_s = 3600.0
    watch.look()
    assert watch.problem() is not None
    clock.idle = True
    watch.look()
    assert watch.problem() is None


def test_set_clock_is_logged_though_a_scrape_saw_it_first(sqlite_url: str) -> None:
    with Ledger.open(sqlite_url) as ledger:
        watch = ClockWatch(ledger.clock)
        with ledger._database.write() as connection:
            connection.execute(clocks.update().values(difference=clocks.c.difference - 3600))
        ledger.clock.read()
        with capture_logs() as logs:
            watch.look()
    assert "the ledger's clock was set; this worker takes no turns for a moment" in [log["event"] for log in logs]
