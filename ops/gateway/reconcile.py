"""Comparison of the gateway's notes with what a provider has billed: by day, model and key, to the token."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from itertools import accumulate

from adapters.toolkit.usage_export import NOTHING, Amount, BilledCost, BilledUsage
from adapters.usage import sum_costs

_ROUNDED_USD = 0.005  # reports round, and so much a day is no other price
_AROUND_MIDNIGHT = timedelta(hours=1)
_MOST_SUSPECTS = 5
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class NotedUsage:
    """What one request has used of one model, by its note."""

    at: float  # Unix time in seconds
    model: str
    key: str  # as the export names it
    amount: Amount
    request_id: str
    cost_usd: float | None = None  # None: unknown price
    complete: bool = True  # False: more may be billed

    @property
    def time(self) -> datetime:
        """Return its time in UTC."""
        return datetime.fromtimestamp(self.at, UTC)


class Fault(StrEnum):
    """What is wrong."""

    NOT_NOTED = "not_noted"  # billed, but no note has it
    NOT_BILLED = "not_billed"  # noted, perhaps twice, but not billed
    OTHER_COST = "other_cost"  # what was used is what was billed, but at another price


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between notes and bill."""

    day: date
    model: str
    key: str  # "": not told apart
    fault: Fault
    amount: Amount = NOTHING  # billed or noted in excess
    noted_usd: float | None = None
    billed_usd: float | None = None
    suspects: tuple[str, ...] = ()  # requests whose notes explain it: incomplete ones, or of just that amount


@dataclass(frozen=True, slots=True)
class _Day:
    """All that was noted and billed for one model and key on one day."""

    day: date
    noted: tuple[NotedUsage, ...] = ()
    billed: Amount = NOTHING

    @property
    def excess(self) -> Amount:
        return self.billed - _sum(self.noted)


def compare(
    noted: Iterable[NotedUsage],
    billed: Iterable[BilledUsage],
    costs: Iterable[BilledCost],
    first: date,
    last: date,
) -> list[Difference]:
    """Return the differences on the days from `first` to `last`, those of costs at the end.

    Both should also have the day before and the day after: an answer around midnight may be billed on either day.
    """
    bill, notes = list(billed), list(noted)
    if not any(line.key for line in bill):  # it does not tell keys apart
        notes = [replace(note, key="") for note in notes]
    groups = _by_model_and_key(notes, bill)
    settled = [
        (model, key, day)
        for (model, key), days in groups.items()
        for day in _settled(days)
        if first <= day.day <= last
    ]
    found = [difference for model, key, day in settled for difference in _differences(model, key, day)]
    wrong = {(each.day, each.model) for each in found}
    usd: dict[tuple[date, str], list[float | None]] = defaultdict(list)
    for model, _, day in settled:
        usd[day.day, model].extend(note.cost_usd for note in day.noted)
    within = [cost for cost in costs if first <= cost.day <= last and (cost.day, cost.model) not in wrong]
    return [*found, *_costs(usd, within)]


def _by_model_and_key(
    notes: Iterable[NotedUsage], bill: Iterable[BilledUsage]
) -> dict[tuple[str, str], dict[date, _Day]]:
    groups: dict[tuple[str, str], dict[date, _Day]] = defaultdict(dict)
    for note in sorted(notes, key=lambda note: note.at):
        days, day = groups[note.model, note.key], note.time.date()
        known = days.get(day, _Day(day))
        days[day] = replace(known, noted=(*known.noted, note))
    for line in bill:
        days = groups[line.model, line.key]
        known = days.get(line.day, _Day(line.day))
        days[line.day] = replace(known, billed=known.billed + line.amount)
    return groups


def _settled(days: dict[date, _Day]) -> Iterator[_Day]:
    """Yield the days in order, with the notes around midnight on the day on which they were billed."""
    ordered = {day: days[day] for day in sorted(days)}
    for day in list(ordered):
        today, tomorrow = ordered[day], ordered.get(day + _DAY)
        if tomorrow is None:
            continue
        midnight = datetime.combine(day + _DAY, datetime.min.time(), UTC)
        late = [note for note in today.noted if midnight - note.time <= _AROUND_MIDNIGHT]
        early = [note for note in tomorrow.noted if note.time - midnight <= _AROUND_MIDNIGHT]
        if moved := _making(tomorrow.excess, late[::-1]):
            kept = today.noted[: len(today.noted) - moved]
            ordered[day + _DAY] = replace(tomorrow, noted=(*today.noted[len(kept) :], *tomorrow.noted))
            ordered[day] = replace(today, noted=kept)
        elif moved := _making(today.excess, early):
            ordered[day] = replace(today, noted=(*today.noted, *tomorrow.noted[:moved]))
            ordered[day + _DAY] = replace(tomorrow, noted=tomorrow.noted[moved:])
    yield from ordered.values()


def _making(amount: Amount, notes: Sequence[NotedUsage]) -> int:
    """Return how many of the notes, from the first on, make up this amount; 0: no number does."""
    if amount == NOTHING:
        return 0
    sums = accumulate(note.amount for note in notes)
    return next((number for number, total in enumerate(sums, 1) if total == amount), 0)


def _differences(model: str, key: str, day: _Day) -> Iterator[Difference]:
    missing, surplus = day.excess.surplus, (NOTHING - day.excess).surplus
    if missing != NOTHING:
        incomplete = (note.request_id for note in day.noted if not note.complete)
        yield Difference(day.day, model, key, Fault.NOT_NOTED, missing, suspects=_first(incomplete))
    if surplus != NOTHING:
        same = (note.request_id for note in day.noted if note.amount == surplus)
        yield Difference(day.day, model, key, Fault.NOT_BILLED, surplus, suspects=_first(same))


def _costs(
    noted: Mapping[tuple[date, str], Sequence[float | None]], costs: Iterable[BilledCost]
) -> Iterator[Difference]:
    """Yield the days on which a model cost something other than its notes say; unknown prices are left out."""
    billed: dict[tuple[date, str], float] = defaultdict(float)
    for cost in costs:
        billed[cost.day, cost.model] += cost.cost_usd
    for (day, model), usd in sorted(billed.items()):
        known = sum_costs(noted.get((day, model), ()))
        if known is not None and abs(usd - known) > _ROUNDED_USD:
            yield Difference(day, model, "", Fault.OTHER_COST, noted_usd=known, billed_usd=usd)


def _sum(notes: Iterable[NotedUsage]) -> Amount:
    return sum((note.amount for note in notes), NOTHING)


def _first(requests: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(requests))[:_MOST_SUSPECTS]
