"""Retries of failed turns: capped exponential backoff with full jitter, and a limit on what they may cost."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from adapters.errors import KINDS, HostBusy, Paid, Retry, TurnError
from adapters.usage import Usage, combine
from remote.backoff import ceiling_s

_WAIT_S = 5.0  # a turn that waits for another checks again about this often
_SLOT_S = 0.2  # for one that lost a race for a slot; it is claimed again only once a slot seems free


@dataclass(frozen=True, slots=True)
class RetryDecision:
    """A retry of the turn."""

    due_at: float  # Unix time, seconds
    counts: bool  # False: it only waited, so the next run is not another attempt


class Final(Enum):
    """The reason not to retry a turn."""

    POINTLESS = "pointless"  # a retry cannot succeed
    MAX_ATTEMPTS = "max_attempts"
    MAX_PAID_RETRIES = "max_paid_retries"
    DEADLINE = "deadline"


@dataclass(frozen=True, slots=True)
class PastAttempt:
    """A finished attempt."""

    outcome: str  # "completed" or an error kind
    usage: Usage  # as booked

    @property
    def paid(self) -> bool:
        """Return whether it counts as paid for in vain."""
        match KINDS[self.outcome].paid if self.outcome in KINDS else Paid.NEVER:
            case Paid.NEVER:
                return False
            case Paid.IF_BOOKED:
                return self.usage.tokens.total > 0
            case Paid.IF_BILLED:
                return self.usage.tokens.total > 0 or not self.usage.complete


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Limits on retries and their delays; see `decide`."""

    max_attempts: int
    max_paid_retries: int
    base_s: float  # the first delay's ceiling
    max_s: float  # every delay's ceiling

    def decide(
        self,
        error: TurnError,
        attempt: int,
        now: float,
        rng: random.Random,
        deadline: float | None = None,
        past: Iterable[PastAttempt] = (),
    ) -> RetryDecision | Final:
        """Return when to retry a turn whose `attempt`-th attempt (from 1) ended with `error`, or why not to.

        `past` are the turn's finished attempts, including this one. At most `max_paid_retries` + 1 of them may
        have been paid for and failed with one kind: what fails twice in the same way is likely to fail a third
        time, and to bill again.

        The delay is drawn uniformly from 0 to base * 2^(attempt-1), capped; if the API named a reset time, the
        delay is added to that.
        """
        if error.retry is Retry.NEVER:
            return Final.POINTLESS
        if error.retry is Retry.WAIT:
            raced = isinstance(error, HostBusy) and not error.others_free
            wait_s = _SLOT_S if raced else _WAIT_S
            return _within(RetryDecision(now + rng.uniform(0.5, 1.5) * wait_s, counts=False), deadline)
        if attempt >= self.max_attempts:
            return Final.MAX_ATTEMPTS
        if len(paid_alike(error, past)) > self.max_paid_retries:
            return Final.MAX_PAID_RETRIES
        delay_s = rng.uniform(0.0, ceiling_s(attempt, self.base_s, self.max_s))
        return _within(RetryDecision(max(now, error.retry_at or now) + delay_s, counts=True), deadline)


def paid_alike(error: TurnError, past: Iterable[PastAttempt]) -> list[PastAttempt]:
    """Return the attempts that were paid for and failed with the same kind as the last one."""
    return [attempt for attempt in past if attempt.outcome == error.kind and attempt.paid]


def too_dear(error: TurnError, past: Iterable[PastAttempt], max_paid_retries: int) -> TurnError:
    """Return the error of a turn not worth another attempt, with what was spent and what to do about it."""
    alike = paid_alike(error, past)
    usage = combine(attempt.usage for attempt in alike)
    many = f"{len(alike)} attempts were" if len(alike) > 1 else "1 attempt was"
    cost = "" if usage.cost_usd is None else f", USD {usage.cost_usd:.4f}"
    short = "" if usage.complete else "at least "
    return type(error)(
        f"{error.message}; not retried: {many} billed ({short}{usage.tokens.total:,} tokens{cost}) and failed "
        f"with {error.kind}; use runturn watch to see why, or raise max_paid_retries (now {max_paid_retries})",
        retry=error.retry,
    )


def _within(decision: RetryDecision, deadline: float | None) -> RetryDecision | Final:
    return decision if deadline is None or decision.due_at < deadline else Final.DEADLINE
