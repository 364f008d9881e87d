"""Differences between notes and bill are found and named, and there are none where there are none."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.toolkit.usage_export import NOTHING, Amount, BilledCost, BilledUsage
from adapters.usage import Tokens
from ops.gateway.reconcile import Difference, Fault, NotedUsage, compare

MONDAY = date(2026, 11, 23)
TUESDAY, SUNDAY = MONDAY + timedelta(days=1), MONDAY - timedelta(days=1)
SONNET, HAIKU = "claude-sonnet-5-5", "claude-haiku-5-5"


def at(day: date, hour: int, minute: int = 0) -> float:
    return datetime(day.year, day.month, day.day, hour, minute, tzinfo=UTC).timestamp()


def amount(number: int) -> Amount:
    return Amount(Tokens(10 * number, number, 100, 7), 3, number % 2)


NOTES = [
    NotedUsage(at(day, hour), model, key, amount(hour), f"req_{day.day}_{model[7]}_{key}_{hour}", 0.01 * hour)
    for day in (MONDAY, TUESDAY)
    for model in (SONNET, HAIKU)
    for key in ("main", "spare")
    for hour in (2, 9, 15)
]


def bill(notes: Iterable[NotedUsage], *, keys: bool = True) -> list[BilledUsage]:
    sums: dict[tuple[date, str, str], Amount] = defaultdict(Amount)
    for note in notes:
        sums[note.time.date(), note.model, note.key if keys else ""] += note.amount
    return [BilledUsage(*place, total) for place, total in sums.items()]


def costs(notes: Iterable[NotedUsage]) -> list[BilledCost]:
    return [BilledCost(note.time.date(), note.model, note.cost_usd or 0.0) for note in notes]


def differences(
    notes: Iterable[NotedUsage], billed: Iterable[BilledUsage], cost: Iterable[BilledCost] = ()
) -> list[Difference]:
    return compare(notes, billed, cost, MONDAY, TUESDAY)


@pytest.mark.parametrize("keys", [True, False])
def test_honest_bill_has_no_difference(keys: bool) -> None:
    assert differences(NOTES, bill(NOTES, keys=keys), costs(NOTES)) == []


@given(st.sampled_from(NOTES))
def test_request_that_is_not_noted_is_found(lost: NotedUsage) -> None:
    notes = [note for note in NOTES if note is not lost]
    (found,) = differences(notes, bill(NOTES), costs(NOTES))
    assert found == Difference(lost.time.date(), lost.model, lost.key, Fault.NOT_NOTED, lost.amount)


@given(st.sampled_from(NOTES))
def test_request_that_is_noted_twice_is_found_and_named(twice: NotedUsage) -> None:
    (found,) = differences([*NOTES, twice], bill(NOTES), costs(NOTES))
    day = twice.time.date()
    assert found == Difference(
        day, twice.model, twice.key, Fault.NOT_BILLED, twice.amount, suspects=(twice.request_id,)
    )


def test_price_that_has_changed_is_found() -> None:
    dearer = [
        replace(line, cost_usd=line.cost_usd * 1.1) if line.model == HAIKU else line for line in costs(NOTES)
    ]
    found = differences(NOTES, bill(NOTES), dearer)
    assert [(each.day, each.model, each.fault) for each in found] == [
        (MONDAY, HAIKU, Fault.OTHER_COST),
        (TUESDAY, HAIKU, Fault.OTHER_COST),
    ]
    assert [(each.noted_usd, each.billed_usd) for each in found] == [
        (pytest.approx(0.52), pytest.approx(0.572))
    ] * 2


def test_unknown_price_and_rounding_are_no_other_price() -> None:
    unknown = [replace(note, cost_usd=None) if note.model == HAIKU else note for note in NOTES]
    rounded = [replace(line, cost_usd=line.cost_usd + 0.0005) for line in costs(NOTES)]
    assert differences(unknown, bill(NOTES), rounded) == []


def test_note_that_is_incomplete_is_suspected() -> None:
    first = NOTES[0]
    partial = replace(first, amount=Amount(Tokens(20, 1, 100, 7), 3), complete=False)
    (found,) = differences([partial, *NOTES[1:]], bill(NOTES))
    assert (found.fault, found.amount) == (Fault.NOT_NOTED, Amount(Tokens(0, 1)))
    assert found.suspects == (first.request_id,)


def test_model_and_key_that_only_one_side_knows_are_differences() -> None:
    billed = [*bill(NOTES), BilledUsage(MONDAY, "claude-opus-5-5", "main", amount(1))]
    stranger = NotedUsage(at(TUESDAY, 3), SONNET, "unheard-of", amount(2), "req_x")
    found = differences([*NOTES, stranger], billed)
    assert {(each.model, each.key, each.fault) for each in found} == {
        ("claude-opus-5-5", "main", Fault.NOT_NOTED),
        (SONNET, "unheard-of", Fault.NOT_BILLED),
    }


@pytest.mark.parametrize(
    ("noted", "billed"),
    [
        ((MONDAY, 23, 58), TUESDAY),
        ((TUESDAY, 0, 4), MONDAY),
        ((SUNDAY, 23, 59), MONDAY),
        ((MONDAY, 0, 1), SUNDAY),
        ((TUESDAY, 23, 30), TUESDAY + timedelta(days=1)),
    ],
)
def test_answer_around_midnight_may_be_billed_on_either_day(noted: tuple[date, int, int], billed: date) -> None:
    late = [NotedUsage(at(*noted), SONNET, "main", amount(n), f"req_{n}", 0.5) for n in (1, 2)]
    other = [BilledUsage(billed, SONNET, "main", amount(1) + amount(2))]
    dearer = [BilledCost(billed, SONNET, 1.0)]
    assert differences([*NOTES, *late], [*bill(NOTES), *other], [*costs(NOTES), *dearer]) == []


def test_answer_of_the_day_is_not_billed_on_another() -> None:
    noon = NotedUsage(at(MONDAY, 12), SONNET, "main", amount(5), "req_noon")
    found = differences([*NOTES, noon], [*bill(NOTES), BilledUsage(TUESDAY, SONNET, "main", amount(5))])
    assert {(each.day, each.fault, each.amount) for each in found} == {
        (MONDAY, Fault.NOT_BILLED, amount(5)),
        (TUESDAY, Fault.NOT_NOTED, amount(5)),
    }


def test_days_outside_are_not_compared() -> None:
    before = NotedUsage(at(SUNDAY, 12), SONNET, "main", amount(5), "req_before")
    after = BilledUsage(TUESDAY + timedelta(days=1), SONNET, "main", amount(5))
    assert differences([*NOTES, before], [*bill(NOTES), after]) == []


def test_amounts_have_surplus_kind_by_kind() -> None:
    difference = Amount(Tokens(1, 2, 3, 4), 5, 6) - Amount(Tokens(2, 1, 3, 0), 6, 1)
    assert difference.surplus == Amount(Tokens(0, 1, 0, 4), 0, 5)
    assert (NOTHING - difference).surplus == Amount(Tokens(1), 1, 0)
