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


def test_patience_ends_when_nothing_has_worked_for_so_long() -> None:
    now = 0.0
    backoff = Backoff(PATIENCE, Random(1), lambda: now)
    backoff.delay_s(LOSS)
    now = 99.9
    backoff.delay_s(LOSS)
    now = 100.0
    with pytest.raises(HostUnreachable):
        backoff.delay_s(LOSS)


def test_a_host_that_never_answered_is_given_less_time() -> None:
    now = 0.0
    patience = Patience(enter_s=10.0, give_up_s=100.0)
    backoff = Backoff(patience, Random(1), lambda: now)
    backoff.attached()
    backoff.delay_s(LOSS)
    now = 99.0
    backoff.delay_s(LOSS)
    fresh = Backoff(patience, Random(1), lambda: now)
    fresh.delay_s(LOSS)
    now = 109.0
    with pytest.raises(HostUnreachable):
        fresh.delay_s(LOSS)


def test_an_attachment_that_held_or_brought_output_renews_patience() -> None:
    now = 0.0
    backoff = Backoff(PATIENCE, Random(1), lambda: now)
    backoff.delay_s(LOSS)
    now = 90.0
    backoff.attached()
    now = 99.0
    backoff.delay_s(LOSS)
    now = 190.0
    backoff.delay_s(LOSS)
    backoff.progressed()
    now = 280.0
    assert backoff.delay_s(LOSS) <= 1.0


def test_a_host_that_answers_and_ends_is_given_up_like_one_that_is_silent() -> None:
    now, tries = 0.0, 0
    backoff = Backoff(PATIENCE, Random(1), lambda: now)
    with pytest.raises(HostUnreachable):
        while True:
            now += backoff.delay_s(LOSS)
            backoff.attached()
            tries += 1
    assert 100 <= now < 108
    assert tries < 50
