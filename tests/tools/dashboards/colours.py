"""Colours: of values by severity, and of outcomes and kinds of tokens, the same on all boards."""

from __future__ import annotations

from collections.abc import Sequence

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models import dashboard as model

GREEN, ORANGE, RED, BLUE = "green", "orange", "red", "blue"

# The value from which on a panel has a colour.
Steps = Sequence[tuple[float | None, str]]
PLAIN: Steps = ((None, BLUE),)
ANY_IS_BAD: Steps = ((None, GREEN), (1, RED))
ANY_IS_ODD: Steps = ((None, GREEN), (1, ORANGE))

# Colours of outcomes and kinds of tokens.
COLOURS = {
    "completed": "green",
    "turn_cancelled": "text",
    "ok": "green",
    "error": "red",
    "input": "blue",
    "output": "orange",
    "cache_read": "green",
    "cache_creation": "purple",
}

BY_THRESHOLD = dashboard.FieldColor().mode(model.FieldColorModeId.THRESHOLDS)
_GREY = "#4a4d55"


def thresholds(steps: Steps) -> dashboard.ThresholdsConfig:
    """Return the steps as Grafana expects them."""
    found = [model.Threshold(value=value, color=colour) for value, colour in steps]
    return dashboard.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(found)


def no_value(text: str) -> model.SpecialValueMap:
    """Return the text for a missing value. Grafana would colour it as the lowest value, often red."""
    result = model.ValueMappingResult(text=text, color=_GREY, index=0)
    options = model.DashboardSpecialValueMapOptions(match=model.SpecialValueMatch.NULL_AND_NAN, result=result)
    return model.SpecialValueMap(options=options)


def named(number: str, text: str, colour: str, place: int) -> model.ValueMap:
    """Return a text and a colour for one value."""
    return model.ValueMap(options={number: model.ValueMappingResult(text=text, color=colour, index=place)})
