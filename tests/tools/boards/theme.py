"""Colors close to Grafana's dark theme, by the names that boards use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

BACKGROUND, PANEL, EDGE = "#111217", "#181b1f", "#2a2d33"
TEXT, DIM, GRID = "#d5d6e0", "#8e909b", "#2b2e34"

NAMED = {
    "green": "#73bf69",
    "red": "#f2495c",
    "orange": "#ff9830",
    "yellow": "#fade2a",
    "blue": "#5794f2",
    "purple": "#b877d9",
    "text": "#9fa1ad",
}
# Behind a number that can be bad: darker, so that the number stands out.
BEHIND = {"green": "#2f7d3b", "red": "#c4162a", "orange": "#c9700f", "blue": "#1f60c4", "yellow": "#b79a12"}
CYCLE = (
    "#73bf69",
    "#f2cc0c",
    "#5794f2",
    "#ff9830",
    "#b877d9",
    "#f2495c",
    "#8ab8ff",
    "#ffa6b0",
    "#c8a2f0",
    "#e0b400",
)


def colour_of(value: float, steps: list[Mapping[str, Any]]) -> str:
    """Return the name of a value's color."""
    name = "green"
    for step in steps:
        if step.get("value") is None or value >= step["value"]:
            name = str(step["color"])
    return name
