"""Money in the ledger: whole billionths of a US dollar, so that sums are exact."""

from __future__ import annotations

from typing import overload

_NANO = 1_000_000_000


@overload
def nano(cost_usd: float) -> int: ...
@overload
def nano(cost_usd: float | None) -> int | None: ...
def nano(cost_usd: float | None) -> int | None:
    """Convert US dollars to nano dollars."""
    return None if cost_usd is None else round(cost_usd * _NANO)


@overload
def dollars(cost_nano: int) -> float: ...
@overload
def dollars(cost_nano: int | None) -> float | None: ...
def dollars(cost_nano: int | None) -> float | None:
    """Convert nano dollars to US dollars."""
    return None if cost_nano is None else int(cost_nano) / _NANO
