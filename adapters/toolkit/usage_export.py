"""Exports of what a provider has billed: by day, model and key, in JSON or CSV as the provider makes them."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TypeVar

from adapters.toolkit.json_lines import Record, decode
from adapters.usage import NO_TOKENS, Tokens

_COUNT = re.compile(r"\d{1,15}", re.ASCII)

Line = TypeVar("Line")


class UnreadableExport(ValueError):
    """The file is not an export of this provider, or is incomplete; the message says where and what to do."""


@dataclass(frozen=True, slots=True)
class Amount:
    """What is billed."""

    tokens: Tokens = NO_TOKENS
    long_lived_cache: int = 0  # those of the tokens written to the cache that are kept for an hour
    web_searches: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(
            self.tokens + other.tokens,
            self.long_lived_cache + other.long_lived_cache,
            self.web_searches + other.web_searches,
        )

    def __sub__(self, other: Amount) -> Amount:
        return Amount(
            self.tokens - other.tokens,
            self.long_lived_cache - other.long_lived_cache,
            self.web_searches - other.web_searches,
        )

    @property
    def surplus(self) -> Amount:
        """Return what is above zero in a difference."""
        counts = (self.tokens.input_tokens, self.tokens.output_tokens)
        cached = (self.tokens.cache_read_input_tokens, self.tokens.cache_creation_input_tokens)
        tokens = Tokens(*(max(0, count) for count in (*counts, *cached)))
        return Amount(tokens, max(0, self.long_lived_cache), max(0, self.web_searches))


NOTHING = Amount()


@dataclass(frozen=True, slots=True)
class BilledUsage:
    """What was billed for one model and key on one day."""

    day: date  # in UTC
    model: str
    key: str  # the API key's name or id; "": the export does not tell keys apart
    amount: Amount


@dataclass(frozen=True, slots=True)
class BilledCost:
    """What one model cost on one day."""

    day: date  # in UTC
    model: str
    cost_usd: float


def buckets(text: str, time: str) -> Iterator[tuple[date, Record]]:
    """Yield day and fields of each result in one page of an API's report, or an array of pages.

    `time` is the field with the beginning of a bucket. Raises UnreadableExport.
    """
    try:
        decoded = decode(text.encode())
        pages = decoded if isinstance(decoded, list) else [decoded]
        for page in pages:
            for bucket in page["data"]:
                day = _day(bucket[time])
                for result in bucket["results"]:
                    yield day, result
        more = bool(pages and pages[-1].get("has_more"))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UnreadableExport(f"not a usage report: {type(error).__name__} at {error}") from None
    if more:
        raise UnreadableExport("the report has more pages (has_more); add them, in an array")


def table(text: str, day: str, required: tuple[str, ...]) -> Iterator[tuple[date, Record]]:
    """Yield day and fields of each line in a CSV file; `day` names the column with it. Raises UnreadableExport."""
    reader = csv.DictReader(io.StringIO(text.removeprefix("\ufeff")), strict=True)
    missing = [name for name in (day, *required) if name not in (reader.fieldnames or ())]
    if missing:
        raise UnreadableExport(f"not a usage export: it has no column {missing[0]}")
    try:
        for line in reader:
            yield _dated(line, day)
    except (csv.Error, ValueError) as error:
        raise UnreadableExport(f"line {reader.line_num}: {error}") from None


def _dated(line: dict[str, str], day: str) -> tuple[date, Record]:
    if None in line or None in line.values():
        raise ValueError("too many or too few columns")
    return date.fromisoformat(line[day][:10]), line


def read_each(lines: Iterable[tuple[date, Record]], read: Callable[[date, Record], Line]) -> Iterator[Line]:
    """Yield what `read` makes of each entry; one that it cannot read is named. Raises UnreadableExport."""
    for number, (day, line) in enumerate(lines, 1):
        try:
            yield read(day, line)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UnreadableExport(f"entry {number}, of {day}: {type(error).__name__}: {error}") from None


def billed_count(value: object) -> int:
    """Return a count, 0 for none. Raise ValueError for anything else."""
    text = "0" if value is None or value == "" else str(value)
    if not _COUNT.fullmatch(text):
        raise ValueError(f"{text[:40]!r} is not a count")
    return int(text)


def named(value: object, what: str) -> str:
    """Return a name. Raise ValueError if there is none."""
    if not isinstance(value, str) or not value:
        raise ValueError(f"no {what}: make the report with group_by {what}")
    return value


def _day(value: object) -> date:
    """Return the day in UTC of a time: as in RFC 3339, or Unix time in seconds."""
    if isinstance(value, int):
        return datetime.fromtimestamp(value, UTC).date()
    return datetime.fromisoformat(str(value)).astimezone(UTC).date()
