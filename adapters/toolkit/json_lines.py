"""Decoding of an agent's output lines."""

from __future__ import annotations

import json
from typing import Any

import orjson

from adapters.events import Malformed
from adapters.protocol import nesting

MAX_MALFORMED = 500  # characters


def decode(line: bytes) -> Any:
    """Return a decoded line of JSON. Raise ValueError if it is invalid."""
    try:
        return orjson.loads(line)
    except ValueError:
        return _mended(line)


def malformed(line: bytes) -> Malformed:
    """Return the event for an unreadable line."""
    # A character has at most four bytes: do not decode megabytes for 500 characters.
    return Malformed(line[: MAX_MALFORMED * 4].decode(errors="replace")[:MAX_MALFORMED])


def _mended(line: bytes) -> Any:
    """Return a decoded line after repairing lone surrogates. Raise ValueError if it is still invalid JSON.

    Agents cut texts at any place: half a surrogate pair is invalid Unicode and becomes a question mark.
    """
    if b"\\ud" not in line and b"\\uD" not in line:
        raise ValueError("not JSON")
    text = json.dumps(nesting.read(line.decode()), ensure_ascii=False)
    return orjson.loads(text.encode(errors="replace"))
