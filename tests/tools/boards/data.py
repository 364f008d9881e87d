"""Results of a panel's queries on a Prometheus."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from tests.support.prometheus_server import Prometheus
from tests.tools.boards.files import Panel, Target, filled

Points = list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Series:
    """One series of a panel: its name in the legend, its labels, and its points."""

    name: str
    labels: Mapping[str, str]
    points: Points

    @property
    def last(self) -> float:
        """Return the newest value; NaN if there is none."""
        return self.points[-1][1] if self.points else math.nan


@dataclass(frozen=True, slots=True)
class Window:
    """A time range, queried on a Prometheus as Grafana would."""

    prometheus: Prometheus
    began: float
    ended: float
    rate_interval: str = "1m"

    def series(self, target: Target) -> list[Series]:
        """Return the series that a query finds, without NaN points."""
        seconds = int(self.ended - self.began)
        expr = filled(target.expr, rate_interval=self.rate_interval, time_range=f"{seconds + 60}s")
        if target.instant:
            found = self.prometheus.get("query", query=expr, time=str(self.ended))["result"]
        else:  # the last step is at the very end
            times = {"start": str(self.ended - seconds), "end": str(self.ended), "step": "1"}
            found = self.prometheus.get("query_range", query=expr, **times)["result"]
        named = [
            Series(
                _name(target.legend, one["metric"]), one["metric"], _points(one.get("values") or [one["value"]])
            )
            for one in found
        ]
        return sorted(named, key=lambda one: one.name)

    def turns(self, target: Target) -> dict[str, Points]:
        """Return the exemplars of a query by turn, which Grafana draws as dots."""
        times = {"start": str(self.began), "end": str(self.ended)}
        turns: dict[str, Points] = {}
        for series in self.prometheus.get("query_exemplars", query=filled(target.expr), **times):
            for one in series["exemplars"]:
                turns.setdefault(one["labels"]["turn_id"], []).append((one["timestamp"], float(one["value"])))
        return turns

    def instant(self, expr: str) -> list[str]:
        """Return the values of an expression at the end of the window, as Prometheus formats them."""
        filled_in = filled(expr, rate_interval=self.rate_interval, time_range="10m")
        found = self.prometheus.get("query", query=filled_in, time=str(self.ended))["result"]
        return [str(series["value"][1]) for series in found]

    def samples(self, target: Target) -> list[float]:
        """Return all values that a query finds."""
        return [value for series in self.series(target) for _, value in series.points]

    def table(self, panel: Panel) -> list[dict[str, float | str]]:
        """Return a table's rows by title, merged as in Grafana."""
        (organize,) = [one for one in panel.json["transformations"] if one["id"] == "organize"]
        renamed = organize["options"]["renameByName"]
        rows: dict[tuple[str, ...], dict[str, float | str]] = {}
        keys = [name for name in renamed if not name.startswith("Value")]
        for target in panel.targets:
            title = renamed.get(f"Value #{target.letter}") or renamed["Value"]
            for series in self.series(target):
                key = tuple(series.labels.get(name, "") for name in keys)
                row = rows.setdefault(key, {renamed[name]: value for name, value in zip(keys, key, strict=True)})
                row[title] = series.last
        return [rows[key] for key in sorted(rows)]


def _name(legend: str, labels: Mapping[str, str]) -> str:
    if legend == "__auto":
        return ", ".join(labels.values()) or "value"
    return re.sub(r"{{(\w+)}}", lambda found: labels.get(found[1], ""), legend)


def _points(values: list[tuple[float, str]]) -> Points:
    return [(at, value) for at, text in values if not math.isnan(value := float(text))]
