"""All existing metrics with their labels, read from the registries rather than a list that could become stale."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from ops.metrics import LedgerCollector, Vocabulary, WorkerMetrics, new_registry
from tests.docs.catalogue import families

# What Prometheus adds, or has of itself.
SCRAPED = frozenset({"instance", "job"})
OWN = {"up": SCRAPED, "ALERTS": frozenset({"alertname", "alertstate", "severity"})}


def known() -> dict[str, frozenset[str]]:
    """Return the names of all series, with their labels."""
    return {**OWN, **dict(_series(_worker())), **dict(_series(_exporter()))}


def ours() -> dict[str, frozenset[str]]:
    """Return the names of our own metrics with their labels; histograms without suffix."""
    return {
        _name(family): SCRAPED | _labels(family)
        for family in (*_worker(), *_exporter())
        if family.name.startswith("runturn_")
    }


def _worker() -> list[Any]:
    registry = new_registry()
    WorkerMetrics(registry)
    return list(families(registry))


def _exporter() -> list[Any]:
    collector = LedgerCollector(cast("Any", None), Vocabulary(), lambda: 0.0)
    return list(collector.describe())  # which asks no ledger


def _series(families: list[Any]) -> Iterator[tuple[str, frozenset[str]]]:
    for family in families:
        labels = SCRAPED | _labels(family)
        if family.type == "histogram":
            yield f"{family.name}_bucket", labels | {"le"}
            yield f"{family.name}_sum", labels
            yield f"{family.name}_count", labels
        else:
            yield _name(family), labels


def _name(family: Any) -> str:
    return f"{family.name}_total" if family.type == "counter" else str(family.name)


def _labels(family: Any) -> frozenset[str]:
    return frozenset(family._labelnames)
