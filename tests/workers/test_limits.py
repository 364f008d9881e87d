"""The limits of an attempt, on a clock of the test's own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from adapters.request import TurnRequest
from ops.settings import AgentSettings
from workers.limits import Limits, Watch

START = 1_000_000.0
LIMITS = Limits(
    turn_timeout_s=3600, read_timeout_s=5, stall_timeout_s=300, deadline_at=None, max_total_tokens=None
)


def kind(watch: Watch, at: float) -> str | None:
    reached = watch.exceeded(START + at)
    return reached.kind if reached else None


def watching(**changes: object) -> Watch:
    return Watch(replace(LIMITS, **changes), START, START)  # type: ignore[arg-type]


def test_silent_agent_is_given_read_timeout() -> None:
    watch = watching()
    assert kind(watch, 4.9) is None
    assert kind(watch, 5) == "read_timeout"


def test_silence_counts_from_the_moment_of_attachment() -> None:
    watch = watching()
    watch.attached(START + 10)
    assert kind(watch, 14.9) is None


def test_stall_timeout_counts_from_the_last_sign_of_life() -> None:
    watch = watching()
    watch.alive(START + 1)
    watch.alive(START + 100)
    assert kind(watch, 399) is None
    assert kind(watch, 400) == "turn_stalled"


def test_stall_timeout_can_be_off() -> None:
    watch = watching(stall_timeout_s=None)
    watch.alive(START + 1)
    assert kind(watch, 3599) is None


def test_turn_timeout_counts_from_the_start_of_the_attempt_even_for_the_next_worker() -> None:
    watch = Watch(LIMITS, START, START + 3000)
    watch.alive(START + 3590)
    assert kind(watch, 3600) == "turn_timeout"


def test_deadline_comes_first() -> None:
    watch = watching(deadline_at=START + 2)
    assert kind(watch, 1.9) is None
    assert kind(watch, 2) == "deadline_exceeded"


def test_token_limit() -> None:
    watch = watching(max_total_tokens=1000)
    watch.alive(START)
    watch.spent(999, 5.0)
    assert kind(watch, 1) is None
    watch.spent(1000, 5.0)
    assert kind(watch, 1) == "budget_exceeded"


def test_cost_limit_is_ours_only_where_the_agent_has_none() -> None:
    watch = watching(max_cost_usd=0.5)
    watch.alive(START)
    watch.spent(10, 0.49)
    assert kind(watch, 1) is None
    watch.spent(10, 0.5)
    assert kind(watch, 1) == "budget_exceeded"
    request = TurnRequest(prompt="x", workspace="/", max_cost_usd=0.5)
    assert Limits.of(request, AgentSettings(), caps_cost_itself=True).max_cost_usd is None
    assert Limits.of(request, AgentSettings(), caps_cost_itself=False).max_cost_usd == 0.5


@pytest.mark.parametrize("off", [0, -1])
def test_request_beats_default_and_default_fills_in(off: int) -> None:
    request = TurnRequest(prompt="x", workspace="/", turn_timeout_ms=1500, max_total_tokens=7)
    limits = Limits.of(request, AgentSettings(stall_timeout_ms=off), caps_cost_itself=True)
    assert limits == Limits(1.5, 5.0, None, None, 7)
    endless = request.model_copy(update={"stall_timeout_ms": 0})
    assert Limits.of(endless, AgentSettings(), caps_cost_itself=True).stall_timeout_s is None
