"""Tokens and money: sums, and what is never mixed."""

from __future__ import annotations

from adapters import events as ev
from adapters.turn_state import TurnState
from adapters.usage import (
    MAX_MODELS,
    NO_USAGE,
    ModelUsage,
    Tokens,
    Usage,
    UsageSource,
    combine,
    limited,
    remainder,
    sum_costs,
)

OBSERVED = Usage({"m": ModelUsage(Tokens(10, 5, 3, 2), 0.5)}, UsageSource.RESULT)
FROM_FILES = Usage(
    {"m": ModelUsage(Tokens(1, 1), 0.1), "n": ModelUsage(Tokens(7), 0.2)}, UsageSource.SESSION_FILES
)
GUESS = Usage({"m": ModelUsage(Tokens(100, 1))}, UsageSource.STREAM, complete=False)


def test_tokens_add_up_by_kind() -> None:
    assert Tokens(1, 2, 3, 4) + Tokens(10, 20, 30, 40) == Tokens(11, 22, 33, 44)
    assert Tokens(11, 22, 33, 44) - Tokens(1, 2, 3, 4) == Tokens(10, 20, 30, 40)


def test_total_and_prompt_include_cached_tokens() -> None:
    assert Tokens(1, 2, 4, 8).total == 15
    assert Tokens(1, 2, 4, 8).prompt == 13


def test_attempts_add_up_by_model() -> None:
    usage = combine([OBSERVED, FROM_FILES])

    assert usage.by_model == {"m": ModelUsage(Tokens(11, 6, 3, 2), 0.6), "n": ModelUsage(Tokens(7), 0.2)}
    assert usage.source is UsageSource.SESSION_FILES
    assert usage.complete


def test_guess_is_never_added_to_what_was_observed() -> None:
    usage = combine([OBSERVED, GUESS])

    assert usage.by_model == OBSERVED.by_model
    assert usage.source is UsageSource.RESULT
    assert not usage.complete


def test_guesses_count_where_nothing_else_is() -> None:
    usage = combine([GUESS, GUESS])

    assert usage.tokens == Tokens(200, 2)
    assert usage.source is UsageSource.STREAM
    assert usage.cost_usd is None


def test_nothing_is_none_and_not_free() -> None:
    assert combine([]) == combine([NO_USAGE]) == NO_USAGE
    assert NO_USAGE.cost_usd is None


def test_one_unknown_cost_makes_the_sum_unknown() -> None:
    assert sum_costs([0.5, 0.25]) == 0.75
    assert sum_costs([0.5, None]) is None
    assert sum_costs([]) == 0.0


def test_what_was_booked_already_is_taken_off_and_never_more_than_there_is() -> None:
    whole = Usage(
        {"m": ModelUsage(Tokens(11, 5, 3, 2), 0.75), "n": ModelUsage(Tokens(7), 0.2)}, UsageSource.SESSION_FILES
    )

    assert remainder(whole, []) == whole
    rest = remainder(whole, [OBSERVED, FROM_FILES])
    assert rest.by_model == {}
    rest = remainder(whole, [Usage({"m": ModelUsage(Tokens(1, 9), 0.25)}, UsageSource.RESULT)])
    assert rest.by_model == {"m": ModelUsage(Tokens(10, 0, 3, 2), 0.5), "n": ModelUsage(Tokens(7), 0.2)}


def test_endless_models_are_summed_as_one_and_no_token_is_lost() -> None:
    many = {f"m{number}": ModelUsage(Tokens(1), 0.5) for number in range(10_000)}
    few = limited(Usage({**many, "x" * 1000: ModelUsage(Tokens(7))}, UsageSource.RESULT))
    assert list(few.by_model) == [*list(many)[:MAX_MODELS], "other"]
    assert few.tokens == Tokens(10_007)
    assert few.by_model["other"].cost_usd is None  # one of them has no price
    assert limited(OBSERVED) is OBSERVED


def test_running_estimate_is_kept_for_as_many_models() -> None:
    state = TurnState()
    state.apply(ev.TokenUsage(f"m{number}", Tokens(1)) for number in range(10_000))
    assert len(state.seen) == MAX_MODELS + 1
    assert state.seen_tokens == Tokens(10_000)
