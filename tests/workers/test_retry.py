"""When a turn comes back."""

from __future__ import annotations

import random

import pytest

from adapters import errors
from adapters.errors import KINDS, Retry, TurnError
from workers.retry import RetryPolicy

NOW = 1_000_000.0
POLICY = RetryPolicy(max_attempts=5, base_s=1.0, max_s=60.0)


def delays(error: TurnError, attempt: int, policy: RetryPolicy = POLICY) -> list[float]:
    rng = random.Random(7)
    decisions = [policy.decide(error, attempt, NOW, rng) for _ in range(1000)]
    return [decision.due_at - NOW for decision in decisions if decision is not None]


@pytest.mark.parametrize(("attempt", "ceiling"), [(1, 1.0), (2, 2.0), (3, 4.0), (4, 8.0)])
def test_delay_is_drawn_evenly_below_a_ceiling_that_doubles(attempt: int, ceiling: float) -> None:
    drawn = delays(errors.Overloaded(), attempt)
    assert 0 <= min(drawn) < 0.05 * ceiling
    assert 0.95 * ceiling < max(drawn) <= ceiling
    assert sum(drawn) / len(drawn) == pytest.approx(ceiling / 2, rel=0.1)


def test_ceiling_is_capped_however_many_attempts_there_were() -> None:
    patient = RetryPolicy(max_attempts=100_000, base_s=1.0, max_s=60.0)
    assert max(delays(errors.Overloaded(), 50_000, patient)) <= 60


def test_last_attempt_is_the_last() -> None:
    assert delays(errors.Overloaded(), 4)
    assert not delays(errors.Overloaded(), 5)


def test_reset_time_is_waited_for_in_full() -> None:
    limited = errors.RateLimited(retry_at=NOW + 3600)
    assert min(delays(limited, 1)) >= 3600
    assert max(delays(limited, 1)) <= 3601


def test_reset_time_in_the_past_is_no_reason_to_hurry() -> None:
    assert min(delays(errors.RateLimited(retry_at=NOW - 3600), 1)) >= 0


def test_waiting_for_a_session_is_no_attempt() -> None:
    decision = POLICY.decide(errors.SessionInUse(), 5, NOW, random.Random(1))
    assert decision is not None
    assert not decision.counts


def test_turn_that_lost_a_race_for_a_slot_is_back_at_once_but_not_for_slots_that_are_of_no_use_to_it() -> None:
    assert max(delays(errors.HostBusy(), 1)) < 0.5
    assert min(delays(errors.HostBusy(others_free=True), 1)) > 2


def test_nothing_is_retried_past_its_deadline() -> None:
    limited = errors.RateLimited(retry_at=NOW + 3600)
    assert POLICY.decide(limited, 1, NOW, random.Random(1), deadline=NOW + 60) is None


@pytest.mark.parametrize("kind", [kind for kind in KINDS.values() if kind.default_retry is Retry.NEVER])
def test_what_cannot_succeed_is_not_retried(kind: type[TurnError]) -> None:
    assert POLICY.decide(kind(), 1, NOW, random.Random(1)) is None
