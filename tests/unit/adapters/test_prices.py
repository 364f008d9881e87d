"""What models cost: by day, by kind of token, by length of the prompt; and unknown where nothing is known."""

from __future__ import annotations

from datetime import date

import pytest

from adapters.prices import NO_PRICES, PriceTable
from adapters.usage import Tokens

FILE = """
[[price]]
model = "one"
also = ["uno"]
dated = true
until = 2026-11-21
input = 4.0
cache_read = 0.4
output = 20.0
long_prompt = { over = 1000, input = 2.0, output = 1.5 }
source = "a page"
checked = 2026-11-01

[[price]]
model = "one"
from = 2026-11-22
input = 5.0
output = 30.0
source = "another page"
checked = 2026-11-01
"""
TOKENS = Tokens(100, 10, 200)  # 400 + 200 + 80 millionths of a dollar before the 22nd


def table(day: int = 21) -> PriceTable:
    return PriceTable.parse(FILE, lambda: date(2026, 11, day))


@pytest.mark.parametrize("model", ["one", "uno", "one-2026-01-31"])
def test_known_model_is_priced_by_all_of_its_names(model: str) -> None:
    assert table().cost_usd(model, TOKENS) == pytest.approx(0.00068)


@pytest.mark.parametrize("model", ["", "on", "one-mini", "one-20260131", "two", "uno-1"])
def test_unknown_model_has_no_price(model: str) -> None:
    assert table().cost_usd(model, TOKENS) is None
    assert table().request_cost_usd(model, TOKENS) is None


def test_price_is_that_of_the_day() -> None:
    assert table(22).cost_usd("one", Tokens(100, 10)) == pytest.approx(0.0008)
    assert table(22).cost_usd("one-2026-01-31", Tokens(100, 10)) is None  # no such name is promised any more


def test_tokens_of_a_kind_without_a_price_leave_the_cost_unknown() -> None:
    assert table().cost_usd("one", Tokens(1, 1, 1, 1)) is None
    assert table(22).cost_usd("one", TOKENS) is None


def test_long_prompt_costs_more_in_one_request_only() -> None:
    tokens = Tokens(900, 10, 101)
    assert table().cost_usd("one", tokens) == pytest.approx(0.0038404)
    assert table().request_cost_usd("one", tokens) == pytest.approx(2 * 0.0036404 + 1.5 * 0.0002)
    assert table().request_cost_usd("one", TOKENS) == pytest.approx(0.00068)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("price = 1", "price"),
        ("[[price]]\nmodel = 'x'", "price.0.source"),
        (FILE + "inputs = 1", "price.1.inputs"),
        (FILE.replace("4.0", "-4.0"), "price.0.input"),
        ("[[price", "Expected"),
    ],
)
def test_faulty_file_is_refused_with_the_fault_named(text: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        PriceTable.parse(text, lambda: date(2026, 11, 22))


def test_table_that_comes_along_has_a_source_for_every_price_and_no_two_prices_for_a_day() -> None:
    prices = list(PriceTable.builtin(lambda: date(2026, 11, 22)))
    assert {"gpt-6.1-sol", "gpt-5.6-sol", "gemini-3.8-flash"} <= {price.model for price in prices}
    days = {day for price in prices for day in (price.since, price.until, price.checked) if day}
    for day in days:
        names = [name for price in prices for name in (price.model, *price.also) if price.covers(name, day)]
        assert len(names) == len(set(names)), day


def test_promotion_is_not_continued_beyond_its_last_day() -> None:
    on = {day: PriceTable.builtin(lambda day=day: date(2026, 11, day)) for day in (21, 22)}  # type: ignore[misc]
    costs = {day: prices.cost_usd("gpt-5.6-sol", Tokens(1_000_000)) for day, prices in on.items()}
    assert costs == {21: 4.0, 22: None}


def test_without_a_table_nothing_has_a_price() -> None:
    assert NO_PRICES.cost_usd("gpt-6.1-sol", TOKENS) is None
