"""The pace at which one attempt's output is read: slower if it has too many events, or takes too long to read.

Nothing is dropped: what is not read yet waits in the spool. So the same output gives the same events at any pace.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

EVENTS_PER_S: Final = 2_000.0
BURST: Final = 2_000  # events that may be recorded at once after a quieter time
_REST_S = 0.005  # the shortest rest; a timer takes a millisecond


class Pace:
    """The pace of one attempt: so many events per second, and at most half of the event loop's time."""

    def __init__(self, clock: Callable[[], float], per_s: float = EVENTS_PER_S, burst: int = BURST) -> None:
        """`clock` returns monotonic time in seconds."""
        self._clock = clock
        self._per_s = per_s
        self._burst = burst
        self._ahead = 0.0  # events recorded ahead of the rate
        self._owed_s = 0.0  # rest owed to others on the loop
        self._at = clock()

    def delay_s(self, recorded: int, busy_s: float) -> float:
        """Return how long to wait before reading on, after reading for `busy_s` and recording so many events."""
        now = self._clock()
        passed, self._at = now - self._at, now
        self._ahead = max(0.0, self._ahead - passed * self._per_s) + recorded
        self._owed_s = max(0.0, self._owed_s - (passed - busy_s)) + busy_s
        rest = self._owed_s if self._owed_s >= _REST_S else 0.0
        return max(rest, (self._ahead - self._burst) / self._per_s)
