"""Periods of budgets, by the UTC calendar."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum


class Period(StrEnum):
    """Period of a budget. Times are Unix seconds."""

    DAY = "day"
    WEEK = "week"  # from Monday, as in ISO 8601
    MONTH = "month"
    TOTAL = "total"  # never resets

    def start(self, now: float) -> float:
        """Return the start of the period that contains `now`."""
        return self._first_day(now).timestamp() if self is not Period.TOTAL else 0.0

    def end(self, now: float) -> float | None:
        """Return the start of the next period; None if there is none."""
        if self is Period.TOTAL:
            return None
        days = {Period.DAY: 1, Period.WEEK: 7, Period.MONTH: 31}[self]  # 31: from any first into the next month
        return self.start((self._first_day(now) + timedelta(days)).timestamp())

    def _first_day(self, now: float) -> datetime:
        today = datetime.fromtimestamp(now, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        if self is Period.WEEK:
            return today - timedelta(today.weekday())
        return today.replace(day=1) if self is Period.MONTH else today
