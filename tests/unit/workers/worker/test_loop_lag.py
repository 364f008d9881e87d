"""How late the event loop is."""

from __future__ import annotations

import asyncio

import pytest

from workers.worker.loop_lag import LoopLag


class Time:
    """A clock that is late by what is said for each sleep; the heart stops when nothing more is said."""

    def __init__(self, *delays_s: float) -> None:
        self.now = 100.0
        self._delays_s = iter(delays_s)

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        delay_s = next(self._delays_s, None)
        if delay_s is None:
            raise asyncio.CancelledError
        self.now += seconds + delay_s


def beaten(*delays_s: float) -> tuple[LoopLag, Time]:
    time = Time(*delays_s)
    beat = LoopLag(time, time.sleep)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(beat.run())
    return beat, time


def test_loop_that_is_in_time_has_no_lag() -> None:
    beat, _ = beaten(0.0, 0.0)
    assert (beat.lag_s(), beat.slow(), beat.stuck()) == (0.0, None, None)


def test_worst_delay_is_told_until_a_window_has_passed() -> None:
    beat, time = beaten(0.1, 3.0, 0.2)
    assert beat.lag_s() == pytest.approx(3.0)
    assert beat.slow() == "the event loop was 3.0 s late"
    assert beaten(3.0, *[0.0] * 40)[0].lag_s() == 0.0
    assert time.now > 100.0


def test_loop_that_stands_still_is_noticed_from_outside() -> None:
    beat, time = beaten(0.0)
    time.now += 0.5 + 10.0  # the next beat is due in half a second
    assert beat.lag_s() == pytest.approx(10.0)
    assert beat.stuck() is None
    time.now += 60.0
    assert beat.stuck() == "the event loop has been stuck for 70 s"


def test_loop_that_was_never_started_is_not_late() -> None:
    assert LoopLag().lag_s() == 0.0
