"""Follows the ledger's clock, and reports a wrong clock of this machine."""

from __future__ import annotations

import structlog

from ops.ledger import OFF_S, LedgerClock

log = structlog.get_logger(__name__)


class ClockWatch:
    """Watches the clocks of one worker."""

    def __init__(self, clock: LedgerClock) -> None:
        self._clock = clock
        self._off = False
        self._settled = True

    def look(self) -> None:
        """Look at both clocks, correct the ledger's if it may be, and log changes. Raises LedgerUnavailable."""
        if self.problem():
            self._clock.correct()
        self._clock.look()
        # Whoever else looks at the clock, such as a scrape, may have seen it first.
        was_settled, self._settled = self._settled, self._clock.settled
        if was_settled and not self._settled:
            log.warning("the ledger's clock was set; this worker takes no turns for a moment")
        problem, was_off = self.problem(), self._off
        self._off = problem is not None
        if self._off and not was_off:
            log.warning("this machine's clock is wrong", error=problem)
        elif was_off and not self._off:
            log.info("this machine's clock is right again")

    def problem(self) -> str | None:
        """Return what is wrong with this machine's clock, and what to do about it; None: nothing."""
        off_s = self._clock.off_s
        if abs(off_s) <= OFF_S:
            return None
        way = "ahead of" if off_s > 0 else "behind"
        return f"this machine's clock is {abs(off_s):.0f} s {way} the ledger's: {self._clock.remedy}"
