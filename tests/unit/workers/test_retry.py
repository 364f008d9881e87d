"""When a turn comes back."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters import errors
from adapters.errors import KINDS, Paid, Retry, TurnError
from adapters.usage import NO_USAGE, ModelUsage, Tokens, Usage, UsageSource
from workers.retry import Final, PastAttempt, RetryDecision, RetryPolicy, paid_alike, too_dear

NOW = 1_000_000.0
POLICY = RetryPolicy(max_attempts=5, max_paid_retries=1, base_s=1.0, max_s=60.0)

BILLED = Usage({"m": ModelUsage(Tokens(100, 20, 3, 4), 0.25)}, UsageSource.RESULT)
ESTIMATED = Usage({"m": ModelUsage(Tokens(100, 20, 3, 4))}, UsageSource.STREAM, complete=False)
UNSEEN = Usage({}, UsageSource.RESULT, complete=False)  # something may have been billed

# Of those that may be tried again, whose failures are the turn's own.
COUNTED = {"api_unreachable", "turn_stalled", "read_timeout", "port_exit", "host_unreachable"}
NOT_COUNTED = {
    "rate_limited", "overloaded", "out_of_tokens",  # the API has refused
    "host_lost", "turn_cancelled",  # the host, or whoever ended the agent
    "session_not_found", "session_in_use",  # refused before anything is asked of a model
}  # fmt: skip


def delays(error: TurnError, attempt: int, policy: RetryPolicy = POLICY) -> list[float]:
    rng = random.Random(7)
    decisions = [policy.decide(error, attempt, NOW, rng) for _ in range(1000)]
    return [decision.due_at - NOW for decision in decisions if isinstance(decision, RetryDecision)]


@pytest.mark.parametrize(("attempt", "ceiling"), [(1, 1.0), (2, 2.0), (3, 4.0), (4, 8.0)])
def test_delay_is_drawn_evenly_below_a_ceiling_that_doubles(attempt: int, ceiling: float) -> None:
    drawn = delays(errors.Overloaded(), attempt)
    assert 0 <= min(drawn) < 0.05 * ceiling
    assert 0.95 * ceiling < max(drawn) <= ceiling
    assert sum(drawn) / len(drawn) == pytest.approx(ceiling / 2, rel=0.1)


def test_ceiling_is_capped_however_many_attempts_there_were() -> None:
    patient = RetryPolicy(max_attempts=100_000, max_paid_retries=1, base_s=1.0, max_s=60.0)
    assert max(delays(errors.Overloaded(), 50_000, patient)) <= 60


def test_last_attempt_is_the_last() -> None:
    assert delays(errors.Overloaded(), 4)
    assert POLICY.decide(errors.Overloaded(), 5, NOW, random.Random(1)) is Final.MAX_ATTEMPTS


def test_reset_time_is_waited_for_in_full() -> None:
    limited = errors.RateLimited(retry_at=NOW + 3600)
    assert min(delays(limited, 1)) >= 3600
    assert max(delays(limited, 1)) <= 3601


def test_reset_time_in_the_past_is_no_reason_to_hurry() -> None:
    assert min(delays(errors.RateLimited(retry_at=NOW - 3600), 1)) >= 0


def test_waiting_for_a_session_is_no_attempt() -> None:
    decision = POLICY.decide(errors.SessionInUse(), 5, NOW, random.Random(1))
    assert isinstance(decision, RetryDecision)
    assert not decision.counts


def test_turn_that_lost_a_race_for_a_slot_is_back_at_once_but_not_for_slots_that_are_of_no_use_to_it() -> None:
    assert max(delays(errors.HostBusy(), 1)) < 0.5
    assert min(delays(errors.HostBusy(others_free=True), 1)) > 2


def test_nothing_is_retried_past_its_deadline() -> None:
    limited = errors.RateLimited(retry_at=NOW + 3600)
    assert POLICY.decide(limited, 1, NOW, random.Random(1), deadline=NOW + 60) is Final.DEADLINE


@pytest.mark.parametrize("kind", [kind for kind in KINDS.values() if kind.default_retry is Retry.NEVER])
def test_what_cannot_succeed_is_not_retried(kind: type[TurnError]) -> None:
    assert POLICY.decide(kind(), 1, NOW, random.Random(1)) is Final.POINTLESS


# -- a retry has to be worth its money


def tried(policy: RetryPolicy, attempts: Iterable[tuple[str, Usage]]) -> tuple[int, RetryDecision | Final]:
    """How many of these attempts a turn gets that all end so, and the last decision."""
    past: list[PastAttempt] = []
    decision: RetryDecision | Final = Final.POINTLESS
    for number, (kind, usage) in enumerate(attempts, 1):
        past.append(PastAttempt(kind, usage))
        error = KINDS[kind](retry=Retry.BACKOFF)
        decision = policy.decide(error, number, NOW, random.Random(1), None, past)
        if isinstance(decision, Final):
            break
    return len(past), decision


@pytest.mark.parametrize("kind", sorted(COUNTED))
@pytest.mark.parametrize("usage", [BILLED, ESTIMATED], ids=["billed", "estimated"])
def test_attempts_that_are_paid_for_and_fail_in_the_same_way_are_two(kind: str, usage: Usage) -> None:
    assert tried(POLICY, [(kind, usage)] * 9) == (2, Final.MAX_PAID_RETRIES)


@pytest.mark.parametrize("kind", sorted(NOT_COUNTED))
def test_what_is_not_the_turns_own_failure_is_tried_to_the_last_attempt(kind: str) -> None:
    assert tried(POLICY, [(kind, BILLED)] * 9) == (5, Final.MAX_ATTEMPTS)


@pytest.mark.parametrize("kind", sorted(COUNTED))
def test_attempts_that_cost_nothing_are_tried_to_the_last(kind: str) -> None:
    assert tried(POLICY, [(kind, NO_USAGE)] * 9) == (5, Final.MAX_ATTEMPTS)


@pytest.mark.parametrize("kind", sorted(COUNTED - {"api_unreachable"}))
def test_what_may_have_been_billed_unseen_counts_as_paid_for(kind: str) -> None:
    assert tried(POLICY, [(kind, UNSEEN)] * 9) == (2, Final.MAX_PAID_RETRIES)


def test_api_that_nobody_reaches_bills_nothing() -> None:
    outage = [("api_unreachable", BILLED), *[("api_unreachable", UNSEEN)] * 8]
    assert tried(POLICY, outage) == (5, Final.MAX_ATTEMPTS)
    back_and_cut_again = [*outage[:3], ("api_unreachable", BILLED)]
    assert tried(POLICY, back_and_cut_again) == (4, Final.MAX_PAID_RETRIES)


def test_another_kind_is_another_failure() -> None:
    kinds = ["port_exit", "turn_stalled", "api_unreachable", "overloaded", "port_exit"]
    patient = RetryPolicy(max_attempts=9, max_paid_retries=1, base_s=1.0, max_s=60.0)
    assert tried(patient, [(kind, BILLED) for kind in kinds]) == (5, Final.MAX_PAID_RETRIES)


def test_deadline_and_last_attempt_have_their_own_names() -> None:
    twice = [PastAttempt("port_exit", BILLED)] * 2
    assert POLICY.decide(errors.PortExit(), 5, NOW, random.Random(1), None, twice) is Final.MAX_ATTEMPTS
    assert POLICY.decide(errors.PortExit(), 1, NOW, random.Random(1), NOW, twice[:1]) is Final.DEADLINE


def test_every_kind_that_may_be_retried_says_whether_it_is_the_turns_own() -> None:
    retried = {kind for kind, error in KINDS.items() if error.default_retry is Retry.BACKOFF}
    assert retried <= COUNTED | NOT_COUNTED
    assert {kind for kind in COUNTED | NOT_COUNTED if KINDS[kind].paid is not Paid.NEVER} == COUNTED


@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(COUNTED | NOT_COUNTED)), st.sampled_from([BILLED, UNSEEN, NO_USAGE]))
    ),
    st.integers(1, 12),
    st.integers(0, 12),
)
def test_no_history_has_more_attempts_or_more_paid_ones_of_a_kind_than_allowed(
    history: list[tuple[str, Usage]], max_attempts: int, max_paid_retries: int
) -> None:
    policy = RetryPolicy(max_attempts, max_paid_retries, base_s=1.0, max_s=60.0)
    count, decision = tried(policy, history)
    past = [PastAttempt(kind, usage) for kind, usage in history[:count]]
    paid = [len(paid_alike(KINDS[kind](), past)) for kind in COUNTED]
    assert count <= max_attempts
    assert max(paid) <= max_paid_retries + 1
    ended_early = decision is Final.MAX_PAID_RETRIES
    assert ended_early == (max(paid) > max_paid_retries and count < max_attempts)


def test_error_says_what_was_spent_and_what_to_do() -> None:
    past = [PastAttempt("port_exit", BILLED), PastAttempt("overloaded", BILLED), PastAttempt("port_exit", BILLED)]
    error = too_dear(errors.PortExit("the agent exited with status 3"), past, 1)
    assert (error.kind, error.retryable) == ("port_exit", True)
    assert error.message == (
        "the agent exited with status 3; not retried: 2 attempts were billed (254 tokens, USD 0.5000) and "
        "failed with port_exit; use runturn watch to see why, or raise max_paid_retries (now 1)"
    )


def test_error_of_a_bill_that_is_not_all_known_says_so() -> None:
    error = too_dear(errors.TurnStalled("silent"), [PastAttempt("turn_stalled", ESTIMATED)], 0)
    assert "1 attempt was billed (at least 127 tokens) and failed with turn_stalled" in error.message
