"""The periods of budgets, by the UTC calendar."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum


class Period(StrEnum):
    """What a budget is for. Times are Unix seconds."""

    DAY = "day"
    WEEK = "week"  # from Monday on, as in ISO 8601
    MONTH = "month"
    TOTAL = "total"  # for good: it never begins anew

    def start(self, now: float) -> float:
        """When the period began that holds `now`."""
        return self._first_day(now).timestamp() if self is not Period.TOTAL else 0.0

    def end(self, now: float) -> float | None:
        """When the next one begins; None: never."""
        if self is Period.TOTAL:
            return None
        days = {Period.DAY: 1, Period.WEEK: 7, Period.MONTH: 31}[self]  # 31: into the next month, from any first
        return self.start((self._first_day(now) + timedelta(days)).timestamp())

    def _first_day(self, now: float) -> datetime:
        today = datetime.fromtimestamp(now, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        if self is Period.WEEK:
            return today - timedelta(today.weekday())
        return today.replace(day=1) if self is Period.MONTH else today
