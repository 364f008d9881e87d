"""Circuit breaker: avoids a failing host."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from random import Random

from remote.backoff import ceiling_s
from remote.errors import HostError, HostUnreachable

_TOLERATED = 3  # consecutive failures
_FIRST_S = 5.0
_LONGEST_S = 60.0  # at once after a refused login or an untrusted key, which retries cannot fix

log = logging.getLogger(__name__)


class CircuitBreaker:
    """Counts the failed connects of one host and decides when to try again."""

    def __init__(self, host: str, rng: Random, clock: Callable[[], float]) -> None:
        self._host = host
        self._rng = rng
        self._clock = clock
        self._failures = 0
        self._failed_at = float("-inf")
        self._until = float("-inf")
        self._last: HostError | None = None

    @property
    def rest_s(self) -> float:
        """Return the seconds until the host should be tried again; 0: now."""
        return max(0.0, self._until - self._clock())

    @property
    def failing(self) -> bool:
        """Return True if the host was avoided and no connect has succeeded since."""
        return self._until != float("-inf")

    def check(self) -> None:
        """Raise the last failure again while the host is avoided."""
        rest_s = self.rest_s
        if rest_s and self._last is not None:
            tries = f"{self._failures} failed connection attempt{'s' if self._failures > 1 else ''}"
            message = f"avoided for another {math.ceil(rest_s)} s after {tries}; the last: {self._last.message}"
            raise type(self._last)(self._host, message)

    def failed(self, error: HostError, began_at: float) -> None:
        """Record the failure of a connect that began at `began_at`. Concurrent failures count as one."""
        if began_at < self._failed_at:
            return
        self._failures += 1
        self._failed_at = self._clock()
        self._last = error
        rest_s = self._pause_s(error)
        if rest_s:
            self._until = self._failed_at + rest_s
            message = "host %s is avoided for %.0f s: %s"
            log.warning(message, self._host, rest_s, error.message, extra={"host": self._host})

    def succeeded(self) -> None:
        """Record a successful connect."""
        self._failures = 0
        self._until = float("-inf")

    def _pause_s(self, error: HostError) -> float:
        if not isinstance(error, HostUnreachable):
            return _LONGEST_S
        if self._failures < _TOLERATED:
            return 0.0
        ceiling = ceiling_s(self._failures - _TOLERATED + 1, _FIRST_S, _LONGEST_S)
        return self._rng.uniform(ceiling / 2, ceiling)
