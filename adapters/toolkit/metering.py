"""The cost of an answer of a model's API, read from the answer's bytes while they pass.

Nothing here raises, and nothing holds back or changes a byte: an answer that is not understood still reaches its
agent, and its usage is reported as incomplete.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from adapters.toolkit.event_stream import MAX_EVENT, EventStream
from adapters.toolkit.json_lines import Record, decode
from adapters.usage import NO_TOKENS, Tokens

_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


@dataclass(frozen=True, slots=True)
class Share:
    """What one model has used for an answer."""

    model: str
    tokens: Tokens
    long_lived_cache: int = 0  # those of the tokens written to the cache that are kept for an hour
    web_searches: int = 0  # billed in addition to tokens
    surcharge: str = ""  # why tokens do not have their usual price, such as `priority`; "" if they do


@dataclass(frozen=True, slots=True)
class Metered:
    """The cost of one answer, as far as it was read."""

    shares: tuple[Share, ...] = ()
    complete: bool = False  # False: more may be billed than was read
    answer_id: str = ""  # in the API's records
    error: str = ""  # the type of the API's error

    @property
    def tokens(self) -> Tokens:
        """Return the tokens of all models."""
        return sum((share.tokens for share in self.shares), NO_TOKENS)


class AnswerReader(Protocol):
    """Reader of one answer's objects, in their order: the events of a stream, or one object."""

    @property
    def marks(self) -> tuple[bytes, ...]:
        """Return what to look for: an event of a stream that contains none of them is not read."""
        ...

    def read(self, record: Record) -> None:
        """Read one object. Raise ValueError, KeyError, TypeError or AttributeError if it is not understood."""
        ...

    def metered(self) -> Metered:
        """Return what was read."""
        ...


class Meter:
    """Meter of one answer: its bytes go in, without transfer or content encoding."""

    def __init__(self, reader: AnswerReader, *, streamed: bool, limit: int = MAX_EVENT) -> None:
        self._reader = reader
        self._events = EventStream(limit) if streamed else None
        self._body = bytearray()  # of an answer in one piece
        self._limit = limit
        self._lost = False  # something was too long, or not understood

    def feed(self, data: bytes) -> None:
        """Read the next bytes."""
        if self._events is None:
            self._keep(data)
            return
        for event in self._events.feed(data):
            if any(mark in event for mark in self._reader.marks):
                self._read(event)

    def end(self) -> Metered:
        """Return the cost. The answer has ended, was broken off, or is read no further."""
        if self._body:
            self._read(bytes(self._body))
            self._body.clear()
        metered = self._reader.metered()
        skipped = self._lost or (self._events is not None and self._events.skipped > 0)
        return replace(metered, complete=metered.complete and not skipped)

    def _keep(self, data: bytes) -> None:
        self._lost |= len(self._body) + len(data) > self._limit
        if self._lost:
            self._body.clear()
        else:
            self._body += data

    def _read(self, text: bytes) -> None:
        try:
            for record in _records(decode(text)):
                self._reader.read(record)
        except _UNREADABLE:
            self._lost = True


def _records(decoded: object) -> Iterator[Record]:
    """Yield the objects of an answer: Gemini's API can send a stream as one array."""
    for record in decoded if isinstance(decoded, list) else [decoded]:
        if not isinstance(record, dict):
            raise TypeError("not an object")
        yield record
