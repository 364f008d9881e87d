"""Readable numbers in the units of panels."""

from __future__ import annotations

import math

_SHORT = ((1e12, " T"), (1e9, " B"), (1e6, " M"), (1e3, " K"))
_BYTES = ((2**40, " TiB"), (2**30, " GiB"), (2**20, " MiB"), (2**10, " KiB"))
_TIMES = ((86400, " d"), (3600, " h"), (60, " min"), (1, " s"), (1e-3, " ms"))


def shown(value: float, unit: str, decimals: int | None = None) -> str:
    """Format a value with its unit."""
    if math.isnan(value):
        return "–"
    match unit:
        case "percentunit":
            text = f"{_digits(value * 100, decimals)}%"
        case "currencyUSD":
            cents = 2 if decimals is None and 0.1 <= abs(value) < 1e3 and value != round(value) else decimals
            text = f"${_scaled(value, _SHORT, cents)}"
        case "s":
            text = _scaled(value, _TIMES, decimals) if value else "0 s"
        case "bytes":
            text = _scaled(value, _BYTES, decimals)
        case _:
            text = _scaled(value, _SHORT, decimals) + unit.partition("suffix:")[2]
    return text


def _scaled(value: float, scales: tuple[tuple[float, str], ...], decimals: int | None) -> str:
    for size, name in scales:
        if abs(value) >= size:
            return f"{_digits(value / size, decimals)}{name}"
    if scales is _TIMES:
        return f"{_digits(value * 1000, decimals)} ms"
    return _digits(value, decimals)


def _digits(value: float, decimals: int | None) -> str:
    """Format a number with these decimals, or else with about three digits."""
    if decimals is None:
        size = abs(value)
        decimals = 0 if size >= 100 or value == round(value) else 1 if size >= 10 else 2 if size >= 0.1 else 3
        text = f"{value:.{decimals}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    return f"{value:.{decimals}f}"
