"""Results of a benchmark: rows by name."""

from __future__ import annotations

from typing import TypedDict


class Row(TypedDict):
    """One measured number."""

    value: float
    unit: str
    goal: str  # in words; empty for a number that only informs
    holds: bool  # whether the goal is reached; True where there is none


Rows = dict[str, Row]


def informs(value: float, unit: str) -> Row:
    """Return a row without a goal."""
    return Row(value=value, unit=unit, goal="", holds=True)


def at_least(value: float, goal: float, unit: str) -> Row:
    """Return a row whose value must not be below its goal."""
    return Row(value=value, unit=unit, goal=f">= {goal:g} {unit}", holds=value >= goal)


def at_most(value: float, goal: float, unit: str) -> Row:
    """Return a row whose value must not exceed its goal."""
    return Row(value=value, unit=unit, goal=f"<= {goal:g} {unit}", holds=value <= goal)
