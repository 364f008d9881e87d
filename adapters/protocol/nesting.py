"""A limit on the depth of JSON that is the same on every Python; the interpreters' own limits differ.

Python 3.11 reads, writes and prints up to about 990 levels, 3.12 about 1,500, and 3.13 more than 5,000.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

_MOST_READ: Final = 500  # levels; every Python reads more


def read(text: str) -> Any:
    """Decode JSON. Raise ValueError if it is invalid, or nested more than 500 levels deep."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if is_deeper(value, _MOST_READ):
        raise ValueError("nested too deeply")
    return value


def is_deeper(value: object, levels: int) -> bool:
    """Return whether objects and arrays are nested more than `levels` deep."""
    found = _containers([value])
    for _ in range(levels):
        if not found:
            return False
        found = [part for each in found for part in _containers(each.values() if isinstance(each, dict) else each)]
    return bool(found)


def _containers(parts: Iterable[object]) -> list[dict[str, object] | list[object]]:
    return [part for part in parts if isinstance(part, dict | list)]
