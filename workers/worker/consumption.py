"""Whether a worker receives turns from the broker, for its readiness."""

from __future__ import annotations

import time
from collections.abc import Callable


class Consumption:
    """The state of a worker's subscription to its queues. It may be read from any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._interrupted_at: float | None = clock()  # None: it receives turns

    def begin(self) -> float:
        """Record that the queues are consumed; return for how long they were not, in seconds."""
        interrupted_at, self._interrupted_at = self._interrupted_at, None
        return 0.0 if interrupted_at is None else self._clock() - interrupted_at

    def interrupt(self) -> None:
        """Record that the subscription is lost, unless it already was."""
        if self._interrupted_at is None:
            self._interrupted_at = self._clock()

    def problem(self) -> str | None:
        """Return why the worker receives no turns, or None if it does."""
        since = self._interrupted_at
        if since is None:
            return None
        return f"not subscribed to its queues for {self._clock() - since:.0f} s; retrying"
