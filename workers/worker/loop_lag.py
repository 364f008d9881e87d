"""The lag of the event loop: whatever blocks it delays every turn of the worker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

_PERIOD_S = 0.5
_WINDOW_S = 15.0  # about one scrape interval
_SLOW_S = 2.0
_STUCK_S = 60.0


class LoopLag:
    """A heartbeat on the loop. It may be read from any thread."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._due_at: float | None = None  # when the next beat is due; None: not started
        self._worst: tuple[float, float] = (0.0, clock())  # the longest lag, and when it was

    async def run(self) -> None:
        """Beat until cancelled."""
        while True:
            self._due_at = self._clock() + _PERIOD_S
            await self._sleep(_PERIOD_S)
            self._beaten(self._clock())

    def lag_s(self) -> float:
        """Return the longest delay within the last seconds, including one in progress."""
        worst, at = self._worst
        recent = worst if self._clock() - at <= _WINDOW_S else 0.0
        return max(recent, self._overdue_s())

    def slow(self) -> str | None:
        """Return why the worker should get no more work, if it should not."""
        lag_s = self.lag_s()
        return f"the event loop was {lag_s:.1f} s late" if lag_s > _SLOW_S else None

    def stuck(self) -> str | None:
        """Return why the worker should be restarted, if it should."""
        overdue_s = self._overdue_s()
        return f"the event loop has been stuck for {overdue_s:.0f} s" if overdue_s > _STUCK_S else None

    def _overdue_s(self) -> float:
        return 0.0 if self._due_at is None else max(0.0, self._clock() - self._due_at)

    def _beaten(self, now: float) -> None:
        lag_s = self._overdue_s()
        worst, at = self._worst
        if lag_s >= worst or now - at > _WINDOW_S:
            self._worst = (lag_s, now)
