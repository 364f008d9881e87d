"""When to try an unreachable host again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from remote.errors import HostUnreachable


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for a host, in seconds."""

    answer_s: float = 60.0  # for its answer to a request, which may carry a prompt of 10 MB
    first_delay_s: float = 0.5  # before the second try, at most; doubled for each further one
    longest_delay_s: float = 15.0  # between two tries, at most
    give_up_s: float = 300.0  # without any answer; longer than a lease there is nothing to wait for


class Backoff:
    """Delays with full jitter below a ceiling that doubles with every failure."""

    def __init__(self, patience: Patience, rng: Random, clock: Callable[[], float]) -> None:
        self._patience = patience
        self._rng = rng
        self._clock = clock
        self._failures = 0
        self._lost_since: float | None = None

    def answered(self) -> None:
        """The host can be reached. Delays stay long until it also gets something done."""
        self._lost_since = None

    def progressed(self) -> None:
        """Output came: the next loss is a new one."""
        self._failures = 0

    def delay_s(self, loss: HostUnreachable) -> float:
        """Return the seconds to wait after `loss`. Raises it when patience has ended."""
        now = self._clock()
        if self._lost_since is None:
            self._lost_since = now
        if now - self._lost_since >= self._patience.give_up_s:
            raise loss
        ceiling = min(self._patience.longest_delay_s, self._patience.first_delay_s * 2.0**self._failures)
        self._failures += 1
        return self._rng.uniform(0.0, ceiling)
