"""When a failing host is avoided, and for how long."""

from __future__ import annotations

import logging
from random import Random

import pytest

from remote.errors import HostAuthFailed, HostError, HostKeyChanged, HostUnreachable
from remote.ssh.circuit_breaker import CircuitBreaker

AWAY = HostUnreachable("box", "nothing listens")


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cool_down(clock: Clock) -> CircuitBreaker:
    return CircuitBreaker("box", Random(1), clock)


def fail(cool_down: CircuitBreaker, clock: Clock, error: HostError = AWAY, times: int = 1) -> None:
    for _ in range(times):
        began_at = clock.now
        clock.now += 1
        cool_down.failed(error, began_at)


def test_a_host_that_is_away_is_tried_three_times_and_then_left_alone(
    cool_down: CircuitBreaker, clock: Clock
) -> None:
    fail(cool_down, clock, times=2)
    assert cool_down.rest_s == 0
    cool_down.check()
    fail(cool_down, clock)
    assert 2.5 <= cool_down.rest_s <= 5
    with pytest.raises(
        HostUnreachable, match=r"avoided for another \d s after 3 failed connection attempts; the last: nothing"
    ):
        cool_down.check()
    clock.now += 5
    assert cool_down.rest_s == 0
    cool_down.check()


def test_the_rest_grows_up_to_a_minute_and_is_never_the_same(clock: Clock) -> None:
    rests = []
    for seed in range(20):
        cool_down = CircuitBreaker("box", Random(seed), clock)
        fail(cool_down, clock, times=2)
        row = []
        for _ in range(8):
            fail(cool_down, clock)
            row.append(cool_down.rest_s)
            clock.now += cool_down.rest_s
        rests.append(row)
    for number, ceiling in enumerate((5, 10, 20, 40, 60, 60, 60, 60)):
        column = [row[number] for row in rests]
        assert ceiling / 2 <= min(column) < max(column) <= ceiling
        assert len(set(column)) == 20


@pytest.mark.parametrize("kind", [HostAuthFailed, HostKeyChanged, HostError])
def test_what_waiting_does_not_mend_is_left_alone_for_a_minute_at_once(
    cool_down: CircuitBreaker, clock: Clock, kind: type[HostError]
) -> None:
    fail(cool_down, clock, kind("box", "go away"))
    assert cool_down.rest_s == 60
    with pytest.raises(
        kind, match=r"host box: avoided for another 60 s after 1 failed connection attempt; the last: go away"
    ):
        cool_down.check()


def test_connects_that_fail_together_count_once(cool_down: CircuitBreaker, clock: Clock) -> None:
    for _ in range(10):
        cool_down.failed(AWAY, began_at=clock.now - 1)
    assert cool_down.rest_s == 0
    fail(cool_down, clock, times=2)
    assert cool_down.rest_s > 0


def test_a_success_ends_the_rest_and_what_went_before_is_forgotten(
    cool_down: CircuitBreaker, clock: Clock
) -> None:
    fail(cool_down, clock, times=3)
    cool_down.succeeded()
    assert cool_down.rest_s == 0
    fail(cool_down, clock, times=2)
    assert cool_down.rest_s == 0


def test_the_log_says_who_is_left_alone_and_why(
    cool_down: CircuitBreaker, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "remote"):
        fail(cool_down, clock, times=2)
        assert caplog.messages == []
        fail(cool_down, clock, HostAuthFailed("box", "go away"))
        assert caplog.messages == ["host box is avoided for 60 s: go away"]
