"""Claude Code's lines, decoded."""

from __future__ import annotations

import json
from typing import Any

import orjson


def decode(line: bytes) -> Any:
    """Decode a line of JSON; raises ValueError if it is none."""
    try:
        return orjson.loads(line)
    except ValueError:
        return mended(line)


def mended(line: bytes) -> Any:
    """Decode a line that is no valid JSON as it stands; raises ValueError if it cannot be mended.

    Claude Code cuts texts without looking: half a surrogate pair is no Unicode, and becomes a question mark.
    """
    if b"\\ud" not in line and b"\\uD" not in line:
        raise ValueError("not JSON")
    try:
        text = json.dumps(json.loads(line.decode()), ensure_ascii=False)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return orjson.loads(text.encode(errors="replace"))
