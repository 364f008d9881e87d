"""The limits of an attempt, on a clock of the test's own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from adapters.protocol.request import TurnRequest
from ops.settings import AgentSettings
from workers.limits import Limits, LimitWatch, Moment

START = 1_000_000.0
BOOTED = 500.0  # the monotonic clock at the start
LIMITS = Limits(
    turn_timeout_s=3600, read_timeout_s=5, stall_timeout_s=300, deadline_at=None, max_total_tokens=None
)


def at_(after_s: float, ahead_s: float = 0.0) -> Moment:
    """Return the moment `after_s` seconds after the start; the ledger's clock was set ahead in between."""
    return Moment(BOOTED + after_s, START + after_s + ahead_s)


def kind(watch: LimitWatch, at: float, ahead_s: float = 0.0) -> str | None:
    reached = watch.exceeded(at_(at, ahead_s))
    return reached.kind if reached else None


def watching(**changes: object) -> LimitWatch:
    return LimitWatch(replace(LIMITS, **changes), START, at_(0))  # type: ignore[arg-type]


def test_silent_agent_is_given_read_timeout() -> None:
    watch = watching()
    assert kind(watch, 4.9) is None
    assert kind(watch, 5) == "read_timeout"


def test_silence_counts_from_the_moment_of_attachment() -> None:
    watch = watching()
    watch.attached(at_(10))
    assert kind(watch, 14.9) is None


def test_stall_timeout_counts_from_the_last_sign_of_life() -> None:
    watch = watching()
    watch.alive(at_(1))
    watch.alive(at_(100))
    assert kind(watch, 399) is None
    assert kind(watch, 400) == "turn_stalled"


def test_stall_timeout_can_be_off() -> None:
    watch = watching(stall_timeout_s=None)
    watch.alive(at_(1))
    assert kind(watch, 3599) is None


def test_turn_timeout_counts_from_the_start_of_the_attempt_even_for_the_next_worker() -> None:
    watch = LimitWatch(LIMITS, START, at_(3000))
    watch.alive(at_(3590))
    assert kind(watch, 3600) == "turn_timeout"


@pytest.mark.parametrize("hour", [3600, -3600])
def test_step_of_a_clock_changes_no_limit_of_a_held_turn(hour: float) -> None:
    watch = watching(max_total_tokens=10, soft_stop_s=30)
    assert kind(watch, 4.9, hour) is None
    watch.alive(at_(4.9, hour))
    assert (kind(watch, 304.8, hour), kind(watch, 304.9, hour)) == (None, "turn_stalled")
    watch.alive(at_(3590, hour))
    watch.spent(10, 0.0)
    assert watch.ending(at_(3591, hour)) is not None
    assert watch.silence_s(at_(3595)) == 5
    assert (kind(watch, 3599.9, hour), kind(watch, 3600, hour)) == (None, "turn_timeout")


@pytest.mark.parametrize("hour", [3600, -3600])
def test_deadline_goes_by_the_ledgers_clock(hour: float) -> None:
    watch = watching(deadline_at=START + 2)
    assert kind(watch, 1.9, hour) == ("deadline_exceeded" if hour > 0 else None)
    assert watch.forbids(at_(2.1, hour)) == ("Deadline exceeded" if hour > 0 else None)


def test_attempt_that_starts_in_the_future_has_all_of_its_time() -> None:
    watch = LimitWatch(LIMITS, START + 3600, at_(0))
    watch.alive(at_(3590))
    assert (kind(watch, 3599.9), kind(watch, 3600)) == (None, "turn_timeout")


def test_deadline_comes_first() -> None:
    watch = watching(deadline_at=START + 2)
    assert kind(watch, 1.9) is None
    assert kind(watch, 2) == "deadline_exceeded"


def test_token_limit() -> None:
    watch = watching(max_total_tokens=1000)
    watch.alive(at_(0))
    watch.spent(999, 5.0)
    assert kind(watch, 1) is None
    watch.spent(1000, 5.0)
    assert kind(watch, 1) == "budget_exceeded"


def test_cost_limit_is_ours_only_where_the_agent_has_none() -> None:
    watch = watching(max_cost_usd=0.5)
    watch.alive(at_(0))
    watch.spent(10, 0.49)
    assert kind(watch, 1) is None
    watch.spent(10, 0.5)
    assert kind(watch, 1) == "budget_exceeded"
    request = TurnRequest(prompt="x", workspace="/", max_cost_usd=0.5)
    assert Limits.of(request, AgentSettings(), caps_cost_itself=True).max_cost_usd is None
    assert Limits.of(request, AgentSettings(), caps_cost_itself=False).max_cost_usd == 0.5


def soft(watch: LimitWatch, at: float) -> str | None:
    ending = watch.ending(at_(at))
    return ending.reason if ending else None


def test_agent_has_its_time_to_end_by_itself_once_its_tokens_are_used_up() -> None:
    watch = watching(max_total_tokens=1000, soft_stop_s=30)
    watch.alive(at_(0))
    watch.spent(1000, 5.0)
    assert (soft(watch, 10), kind(watch, 10)) == ("Token budget exhausted", None)
    assert (soft(watch, 39.9), kind(watch, 39.9)) == ("Token budget exhausted", None)
    assert kind(watch, 40) == "budget_exceeded"


def test_agent_is_told_that_it_cost_too_much() -> None:
    watch = watching(max_cost_usd=0.5, soft_stop_s=30)
    watch.spent(10, 0.5)
    assert soft(watch, 1) == "Cost budget exhausted"


@pytest.mark.parametrize(("length", "early"), [(3600, 30), (300, 30), (100, 10), (10, 1)])
def test_soft_stop_comes_before_the_deadline_by_a_tenth_of_the_time_at_most(length: int, early: int) -> None:
    watch = watching(deadline_at=START + length, soft_stop_s=30, stall_timeout_s=None, turn_timeout_s=7200)
    watch.alive(at_(0))
    assert soft(watch, length - early - 0.1) is None
    assert (soft(watch, length - early), kind(watch, length - early)) == ("Deadline exceeded", None)
    assert kind(watch, length) == "deadline_exceeded"


def test_other_limits_know_no_soft_stop() -> None:
    watch = watching(soft_stop_s=30)
    assert (soft(watch, 5), kind(watch, 5)) == (None, "read_timeout")
    watch.alive(at_(3590))
    assert (soft(watch, 3600), kind(watch, 3600)) == (None, "turn_timeout")


@pytest.mark.parametrize(("can", "ms", "seconds"), [(True, 30_000, 30), (True, 0, 0), (False, 30_000, 0)])
def test_only_an_agent_that_can_is_given_time_to_end_by_itself(can: bool, ms: int, seconds: float) -> None:
    request = TurnRequest(prompt="x", workspace="/")
    settings = AgentSettings(soft_stop_ms=ms)
    assert Limits.of(request, settings, caps_cost_itself=True, ends_by_itself=can).soft_stop_s == seconds
    watch = watching(max_total_tokens=1, deadline_at=START + 9, soft_stop_s=seconds)
    watch.spent(1, 0.0)
    assert (watch.ending(at_(0)) is None) == (seconds == 0)
    assert (kind(watch, 1) is None) == (seconds > 0)
    assert watch.forbids(at_(0)) == "Token budget exhausted"


def test_no_tool_may_run_once_the_deadline_has_come_or_the_tokens_are_used_up() -> None:
    watch = watching(max_total_tokens=1000, deadline_at=START + 9)
    watch.spent(999, 0.0)
    assert (watch.forbids(at_(8.9)), watch.forbids(at_(9))) == (None, "Deadline exceeded")
    watch.spent(1000, 0.0)
    assert (watch.forbids(at_(0)), watch.forbids(at_(9))) == ("Token budget exhausted", "Deadline exceeded")


@pytest.mark.parametrize("off", [0, -1])
def test_request_beats_default_and_default_fills_in(off: int) -> None:
    request = TurnRequest(prompt="x", workspace="/", turn_timeout_ms=1500, max_total_tokens=7)
    limits = Limits.of(request, AgentSettings(stall_timeout_ms=off), caps_cost_itself=True)
    assert limits == Limits(1.5, 5.0, None, None, 7)
    endless = request.model_copy(update={"stall_timeout_ms": 0})
    assert Limits.of(endless, AgentSettings(), caps_cost_itself=True).stall_timeout_s is None
