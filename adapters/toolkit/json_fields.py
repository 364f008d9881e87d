"""Checked reading of what stands in a decoded line: another program wrote it."""

from __future__ import annotations

_LIMIT = 2**53  # no JSON reader keeps greater integers exact, and no agent counts so far


def string(value: object) -> str:
    """The string; raises TypeError for anything else."""
    if type(value) is not str:
        raise TypeError("not a string")
    return value


def optional_string(value: object) -> str | None:
    """The string, or None for anything else."""
    return value if isinstance(value, str) else None


def number(value: object) -> float | None:
    """The number, or None for anything else and for absurd ones."""
    return value if isinstance(value, int | float) and -_LIMIT < value < _LIMIT else None


def integer(value: object) -> int | None:
    """The number, rounded, or None."""
    if type(value) is int:
        return value if -_LIMIT < value < _LIMIT else None
    read = number(value)
    return None if read is None else round(read)


def count(value: object) -> int:
    """The number, rounded; raises TypeError if it is none."""
    read = integer(value)
    if read is None:
        raise TypeError("not a number")
    return read
