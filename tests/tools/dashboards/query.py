"""Queries of panels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import TypeVar

from grafana_foundation_sdk.builders import prometheus
from grafana_foundation_sdk.models import common as shapes
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from tests.tools.dashboards.colours import Steps

T = TypeVar("T")

# A variable, so that the boards can be imported with any Prometheus.
DATASOURCE = shapes.DataSourceRef(type_val="prometheus", uid="${datasource}")


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a panel, and the names of its series."""

    expr: str
    legend: str = ""
    exemplars: bool = False


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table: a query with one value per row."""

    title: str
    expr: str
    unit: str
    steps: Steps | None = None
    decimals: int | None = None


def target(
    query: Query,
    letter: str = "A",
    *,
    instant: bool = False,
    form: PromQueryFormat = PromQueryFormat.TIME_SERIES,
) -> prometheus.Dataquery:
    """Return the query as Grafana expects it; `instant`: only for its current value."""
    asked = prometheus.Dataquery().expr(query.expr).ref_id(letter).format(form).datasource(DATASOURCE)
    asked = asked.instant() if instant else asked.range()
    asked.legend_format(query.legend or "__auto")
    return asked.exemplar(query.exemplars)


def lettered(items: Sequence[T]) -> Iterator[tuple[str, T]]:
    """Pair items with the letters by which Grafana identifies a panel's queries."""
    return zip(ascii_uppercase, items, strict=False)
