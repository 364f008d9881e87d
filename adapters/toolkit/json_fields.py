"""Checked access to fields of decoded lines, which another program wrote."""

from __future__ import annotations

_LIMIT = 2**53  # many JSON readers lose precision beyond this; no agent counts that far


def string(value: object) -> str:
    """Return the string. Raise TypeError for anything else."""
    if type(value) is not str:
        raise TypeError("not a string")
    return value


def optional_string(value: object) -> str | None:
    """Return the string, or None for anything else."""
    return value if isinstance(value, str) else None


def number(value: object) -> float | None:
    """Return the number, or None for anything else and for numbers out of range."""
    return value if isinstance(value, int | float) and -_LIMIT < value < _LIMIT else None


def integer(value: object) -> int | None:
    """Return the number, rounded, or None."""
    if type(value) is int:
        return value if -_LIMIT < value < _LIMIT else None
    read = number(value)
    return None if read is None else round(read)


def count(value: object) -> int:
    """Return the number, rounded. Raise TypeError for anything else."""
    read = integer(value)
    if read is None:
        raise TypeError("not a number")
    return read
