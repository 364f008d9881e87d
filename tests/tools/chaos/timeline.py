"""Schedule of actions, run in order in one thread."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable

Deed = Callable[[], None]


class Timeline:
    """A schedule in seconds from the start of `play`. An action may schedule others."""

    def __init__(self) -> None:
        self._deeds: list[tuple[float, int, Deed]] = []
        self._numbers = itertools.count()  # what is due at the same time happens in the order it was put down
        self._began_at = 0.0
        self._stopped = threading.Event()

    @property
    def now(self) -> float:
        """Return the current time."""
        return time.monotonic() - self._began_at

    def at(self, when_s: float, deed: Deed) -> None:
        """Schedule an action."""
        heapq.heappush(self._deeds, (when_s, next(self._numbers), deed))

    def after(self, delay_s: float, deed: Deed) -> None:
        """Schedule an action after a delay, during `play`."""
        self.at(self.now + delay_s, deed)

    def play(self) -> None:
        """Run until nothing is left, or `stop` is called."""
        self._began_at = time.monotonic()
        while self._deeds:
            due_s = self._deeds[0][0] - self.now
            if self._stopped.wait(max(due_s, 0.0)):
                return
            heapq.heappop(self._deeds)[2]()

    def stop(self) -> None:
        """Stop, from any thread."""
        self._stopped.set()
