"""Decoding of an agent's output lines, and the parser that agents' own ones extend."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import orjson

from adapters.events import HEARTBEAT, Event, Malformed
from adapters.protocol import nesting

MAX_MALFORMED = 500  # characters
HEARTBEATS: tuple[Event, ...] = (HEARTBEAT,)

_MAYBE = (b"{", b" ", b"\t", b"\r", b"\n", b"\v", b"\f")  # what an object or a blank line begins with

Record = dict[str, Any]  # a decoded line; every access by a reader is checked, or its error is caught here
Events = tuple[Event, ...]
Readers = dict[object, Callable[[Record, float | None], Events]]


class LineParser:
    """Parser of lines that are JSON objects, each with a type. An unknown type is a sign of life."""

    def __init__(self, readers: Readers) -> None:
        self._readers = readers  # by type

    def feed(self, line: bytes, at: float | None) -> Events:
        """Return the events of one line; never raises."""
        # An agent may print millions of lines that are nothing like JSON, and an exception costs more than a look.
        if not line.startswith(_MAYBE):
            return (malformed(line),) if line else HEARTBEATS
        try:
            return self._read(decode(line), at)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return (malformed(line),) if line.strip() else HEARTBEATS

    def _read(self, record: Record, at: float | None) -> Events:
        reader = self._readers.get(record.get("type"))
        return reader(record, at) if reader is not None else HEARTBEATS


def elapsed_ms(since: float | None, until: float | None) -> int | None:
    """Return the milliseconds between two monotonic times in seconds, if both were seen live."""
    return None if since is None or until is None else round((until - since) * 1000)


def decode(line: bytes) -> Any:
    """Return a decoded line of JSON. Raise ValueError if it is invalid."""
    try:
        return orjson.loads(line)
    except ValueError:
        if b"\\ud" not in line and b"\\uD" not in line:
            raise
        return _mended(line)


def malformed(line: bytes) -> Malformed:
    """Return the event for an unreadable line."""
    if len(line) <= MAX_MALFORMED:
        return Malformed(line.decode(errors="replace"))
    # A character has at most four bytes: do not decode megabytes for 500 characters.
    return Malformed(line[: MAX_MALFORMED * 4].decode(errors="replace")[:MAX_MALFORMED])


def _mended(line: bytes) -> Any:
    """Return a decoded line after repairing lone surrogates. Raise ValueError if it is still invalid JSON.

    Agents cut texts at any place: half a surrogate pair is invalid Unicode and becomes a question mark.
    """
    text = json.dumps(nesting.read(line.decode()), ensure_ascii=False)
    return orjson.loads(text.encode(errors="replace"))
