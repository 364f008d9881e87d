from __future__ import annotations

from random import Random

import pytest

from remote.backoff import Backoff, Patience
from remote.errors import HostUnreachable

LOSS = HostUnreachable("h", "lost")
PATIENCE = Patience(first_delay_s=1.0, longest_delay_s=8.0, give_up_s=100.0)


def test_delays_double_up_to_the_ceiling_with_full_jitter() -> None:
    delays = []
    for seed in range(500):
        backoff = Backoff(PATIENCE, Random(seed), lambda: 0.0)
        delays.append([backoff.delay_s(LOSS) for _ in range(6)])
    for column, ceiling in zip(zip(*delays, strict=True), (1, 2, 4, 8, 8, 8), strict=True):
        assert 0 <= min(column) < 0.05 * ceiling
        assert 0.95 * ceiling < max(column) <= ceiling


def test_patience_ends_when_the_host_has_not_answered_for_so_long() -> None:
    now = 0.0
    backoff = Backoff(PATIENCE, Random(1), lambda: now)
    backoff.delay_s(LOSS)
    now = 99.9
    backoff.delay_s(LOSS)
    backoff.answered()
    backoff.delay_s(LOSS)
    now = 199.8
    backoff.delay_s(LOSS)
    now = 199.9
    with pytest.raises(HostUnreachable):
        backoff.delay_s(LOSS)


def test_a_host_that_only_answers_is_not_asked_ever_faster() -> None:
    backoff = Backoff(PATIENCE, Random(1), lambda: 0.0)

    def ceiling() -> float:
        return max(backoff.delay_s(LOSS) for _ in range(200))

    assert ceiling() > 7
    backoff.answered()
    assert ceiling() > 7
    backoff.progressed()
    assert backoff.delay_s(LOSS) <= 1
