"""When a failed turn is tried again: capped exponential backoff with full jitter."""

from __future__ import annotations

import random
from dataclasses import dataclass

from adapters.errors import HostBusy, Retry, TurnError

_WAIT_S = 5.0  # a turn that waits for another one looks again about this often
_SLOT_S = 0.2  # one that lost a race for a slot; it is taken again only when there seems to be one


@dataclass(frozen=True, slots=True)
class RetryDecision:
    """The turn comes back."""

    due_at: float  # Unix time, seconds
    counts: bool  # False: it only waited, the next run is no further attempt


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how soon; see `decide`."""

    max_attempts: int
    base_s: float  # the first delay's ceiling
    max_s: float  # every delay's ceiling

    def decide(
        self, error: TurnError, attempt: int, now: float, rng: random.Random, deadline: float | None = None
    ) -> RetryDecision | None:
        """Whether a turn whose `attempt`-th attempt (from 1) ended with `error` is tried again, and when.

        The delay is drawn evenly from 0 to base * 2^(attempt-1), capped ("full jitter", AWS Architecture Blog
        2015); a reset time that the API named is waited for in full, the delay comes on top.
        """
        if error.retry is Retry.NEVER:
            return None
        if error.retry is Retry.WAIT:
            raced = isinstance(error, HostBusy) and not error.others_free
            wait_s = _SLOT_S if raced else _WAIT_S
            return self._within(RetryDecision(now + rng.uniform(0.5, 1.5) * wait_s, counts=False), deadline)
        if attempt >= self.max_attempts:
            return None
        ceiling = min(self.max_s, self.base_s * 2.0 ** min(attempt - 1, 60))
        earliest = max(now, error.retry_at or now)
        return self._within(RetryDecision(earliest + rng.uniform(0.0, ceiling), counts=True), deadline)

    @staticmethod
    def _within(decision: RetryDecision, deadline: float | None) -> RetryDecision | None:
        return decision if deadline is None or decision.due_at < deadline else None
