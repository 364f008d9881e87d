"""The rate at which one attempt's events are recorded: the output of a faster agent is read more slowly.

Nothing is dropped: what is not read yet waits in the spool. So the same output gives the same events at any pace.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

EVENTS_PER_S: Final = 2_000.0
BURST: Final = 2_000  # events that may be recorded at once after a quieter time


class Pace:
    """The pace of one attempt."""

    def __init__(self, clock: Callable[[], float], per_s: float = EVENTS_PER_S, burst: int = BURST) -> None:
        """`clock` returns monotonic time in seconds."""
        self._clock = clock
        self._per_s = per_s
        self._burst = burst
        self._ahead = 0.0  # events recorded ahead of the rate
        self._at = clock()

    def delay_s(self, recorded: int) -> float:
        """Return how long to wait before reading on, after recording this many events."""
        now = self._clock()
        self._ahead = max(0.0, self._ahead - (now - self._at) * self._per_s) + recorded
        self._at = now
        return max(0.0, (self._ahead - self._burst) / self._per_s)
