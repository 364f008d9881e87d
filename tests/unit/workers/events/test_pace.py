"""How fast the events of one attempt are recorded."""

from __future__ import annotations

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
        assert pace.delay_s(10) == 0


def test_burst_is_read_at_once_and_what_follows_at_the_rate() -> None:
    clock = Clock()
    began, pace = clock(), Pace(clock, per_s=10, burst=20)
    recorded = 0
    while recorded < 1020:
        recorded += 5
        clock.now += pace.delay_s(5)
    assert clock() - began == 100.0


def test_lines_without_events_are_not_delayed() -> None:
    clock = Clock()
    pace = Pace(clock, per_s=10, burst=20)
    assert [pace.delay_s(0) for _ in range(1000)] == [0.0] * 1000


def test_quiet_time_earns_no_more_than_the_burst() -> None:
    clock = Clock()
    pace = Pace(clock, per_s=10, burst=20)
    clock.now += 10_000.0
    assert pace.delay_s(30) == 1.0
