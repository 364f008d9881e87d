"""The committed boards, as Grafana reads them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.support.places import ROOT

FOLDER = ROOT / "ops" / "grafana" / "dashboards"

# What Grafana puts in the place of its variables: everything.
ALL = {"$agent": ".*", "$model": ".*", "$host": ".*"}


@dataclass(frozen=True, slots=True)
class Target:
    """One query of a panel."""

    expr: str
    instant: bool
    legend: str
    letter: str
    exemplars: bool


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel of a board."""

    board: str
    json: Mapping[str, Any]

    @property
    def kind(self) -> str:
        return str(self.json["type"])

    @property
    def title(self) -> str:
        return str(self.json.get("title", ""))

    @property
    def unit(self) -> str:
        """Return the unit of its values; for a heatmap, that of its buckets."""
        if self.kind == "heatmap":
            return str(self.json["options"]["yAxis"].get("unit", ""))
        return str(self.json["fieldConfig"]["defaults"].get("unit", ""))

    @property
    def targets(self) -> list[Target]:
        return [
            Target(
                found["expr"],
                found["instant"],
                found.get("legendFormat", ""),
                found["refId"],
                found.get("exemplar", False),
            )
            for found in self.json["targets"]
        ]

    def __str__(self) -> str:
        return f"{self.board}: {self.title} ({self.json['id']})"


def boards() -> dict[str, dict[str, Any]]:
    """Return all boards by name."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}


def panels() -> Iterator[Panel]:
    """Yield all panels of all boards, without the headings."""
    for name, board in boards().items():
        for panel in board["panels"]:
            if panel["type"] != "row":
                yield Panel(name, panel)


def filled(expr: str, *, rate_interval: str = "5m", time_range: str = "1h") -> str:
    """Return a query as Grafana sends it."""
    values = {**ALL, "$__rate_interval": rate_interval, "$__range": time_range}
    for name in sorted(values, key=len, reverse=True):
        expr = expr.replace(name, values[name])
    return expr
