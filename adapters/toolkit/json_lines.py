"""The lines that an agent prints, decoded."""

from __future__ import annotations

import json
from typing import Any

import orjson

from adapters.events import Malformed
from adapters.protocol import nesting

MAX_MALFORMED = 500  # characters


def decode(line: bytes) -> Any:
    """Decode a line of JSON; raises ValueError if it is none."""
    try:
        return orjson.loads(line)
    except ValueError:
        return _mended(line)


def malformed(line: bytes) -> Malformed:
    """The event for a line that cannot be read."""
    # A character is at most four bytes: no need to decode megabytes for 500 of them.
    return Malformed(line[: MAX_MALFORMED * 4].decode(errors="replace")[:MAX_MALFORMED])


def _mended(line: bytes) -> Any:
    """Decode a line that is no valid JSON as it stands; raises ValueError if it cannot be mended.

    Agents cut texts without looking: half a surrogate pair is no Unicode, and becomes a question mark.
    """
    if b"\\ud" not in line and b"\\uD" not in line:
        raise ValueError("not JSON")
    text = json.dumps(nesting.read(line.decode()), ensure_ascii=False)
    return orjson.loads(text.encode(errors="replace"))
