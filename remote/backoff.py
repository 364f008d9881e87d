"""When to try again what has failed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from remote.errors import HostUnreachable


def ceiling_s(failures: int, first_s: float, longest_s: float) -> float:
    """Return the longest delay after so many failures in a row: it doubles with each after the first one.

    Callers draw the delay below it: "full jitter", AWS Architecture Blog 2015.
    """
    return min(longest_s, first_s * 2.0 ** min(failures - 1, 60))


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for a host, in seconds."""

    answer_s: float = 60.0  # for its answer to a request, which may carry a prompt of 10 MB
    first_delay_s: float = 0.5  # before the second try, at most; doubled for each further one
    longest_delay_s: float = 15.0  # between two tries, at most
    give_up_s: float = 300.0  # of failures only; a turn whose lease has run out is not worth more
    enter_s: float | None = None  # the same for a host that has not answered yet; None: no less


class Backoff:
    """Delays with full jitter, below a ceiling that doubles with every failure."""

    def __init__(self, patience: Patience, rng: Random, clock: Callable[[], float]) -> None:
        self._patience = patience
        self._rng = rng
        self._clock = clock
        self._failures = 0
        self._failing_since: float | None = None
        self._attached_at: float | None = None
        self._give_up_s = patience.give_up_s if patience.enter_s is None else patience.enter_s

    def attached(self) -> None:
        """The host answered. Should it keep losing us at once, that is still a failure."""
        self._attached_at = self._clock()
        self._give_up_s = self._patience.give_up_s

    def progressed(self) -> None:
        """Output came: the next loss is a new one."""
        self._failures = 0
        self._failing_since = None

    def delay_s(self, loss: HostUnreachable) -> float:
        """Return the seconds to wait after `loss`. Raises it when patience has ended."""
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
