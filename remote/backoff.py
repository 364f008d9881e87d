"""Retry delays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from remote.errors import HostUnreachable


def ceiling_s(failures: int, first_s: float, longest_s: float) -> float:
    """Return the longest delay after `failures` in a row: `first_s`, doubled with each failure after the first.

    Callers draw the actual delay below it ("full jitter", AWS Architecture Blog 2015).
    """
    return min(longest_s, first_s * 2.0 ** min(failures - 1, 60))


@dataclass(frozen=True, slots=True)
class Patience:
    """Limits on waiting for a host, in seconds."""

    answer_s: float = 60.0  # for its answer to a request, which may carry a prompt of 10 MB
    first_delay_s: float = 0.5  # maximum before the second try; doubled for each further one
    longest_delay_s: float = 15.0  # maximum between two tries
    give_up_s: float = 300.0  # of failures only; more would not help a turn whose lease has expired
    enter_s: float | None = None  # the same for a host that has not answered yet; None: `give_up_s`


class Backoff:
    """Delays with full jitter, below a ceiling that doubles after every failure."""

    def __init__(self, patience: Patience, rng: Random, clock: Callable[[], float]) -> None:
        self._patience = patience
        self._rng = rng
        self._clock = clock
        self._failures = 0
        self._failing_since: float | None = None
        self._attached_at: float | None = None
        self._give_up_s = patience.give_up_s if patience.enter_s is None else patience.enter_s

    def attached(self) -> None:
        """Record that the host answered. Losing it again at once continues the same series of failures."""
        self._attached_at = self._clock()
        self._give_up_s = self._patience.give_up_s

    def progressed(self) -> None:
        """Record output: the next loss starts a new series of failures."""
        self._failures = 0
        self._failing_since = None

    def delay_s(self, loss: HostUnreachable) -> float:
        """Return the seconds to wait after `loss`. Raise it once patience is exhausted."""
        now = self._clock()
        if self._attached_at is not None and now - self._attached_at >= self._patience.longest_delay_s:
            self.progressed()
        self._attached_at = None
        if self._failing_since is None:
            self._failing_since = now
        if now - self._failing_since >= self._give_up_s:
            raise loss
        self._failures += 1
        patience = self._patience
        return self._rng.uniform(0.0, ceiling_s(self._failures, patience.first_delay_s, patience.longest_delay_s))
