"""How fast the events of one attempt are recorded."""

from __future__ import annotations

import pytest

from workers.events.pace import Pace


class Clock:
    """Monotonic time that passes only while somebody waits."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_usual_output_is_read_without_delay() -> None:
    clock = Clock()
    pace = Pace(clock, per_s=10, burst=20)
    for _ in range(1000):
        clock.now += 1.0
        assert pace.delay_s(10, 0.0) == 0


def test_burst_is_read_at_once_and_what_follows_at_the_rate() -> None:
    clock = Clock()
    began, pace = clock(), Pace(clock, per_s=10, burst=20)
    recorded = 0
    while recorded < 1020:
        recorded += 5
        clock.now += pace.delay_s(5, 0.0)
    assert clock() - began == 100.0


def test_lines_without_events_are_not_delayed() -> None:
    clock = Clock()
    pace = Pace(clock, per_s=10, burst=20)
    assert [pace.delay_s(0, 0.0) for _ in range(1000)] == [0.0] * 1000


def test_quiet_time_earns_no_more_than_the_burst() -> None:
    clock = Clock()
    pace = Pace(clock, per_s=10, burst=20)
    clock.now += 10_000.0
    assert pace.delay_s(30, 0.0) == 1.0


def test_reading_takes_half_of_the_time() -> None:
    clock = Clock()
    began, pace = clock(), Pace(clock)
    for _ in range(1000):
        clock.now += 0.001
        clock.now += pace.delay_s(0, 0.001)
    assert 1.99 < clock() - began <= 2.01


def test_time_that_others_had_anyway_counts_as_rest() -> None:
    clock = Clock()
    pace = Pace(clock)
    for _ in range(1000):
        clock.now += 0.003
        assert pace.delay_s(0, 0.001) == 0.0


def test_long_line_is_followed_by_as_long_a_rest_and_then_forgotten() -> None:
    clock = Clock()
    pace = Pace(clock)
    clock.now += 0.2
    assert pace.delay_s(1, 0.2) == pytest.approx(0.2)
    clock.now += 0.201
    assert pace.delay_s(1, 0.001) == 0.0
