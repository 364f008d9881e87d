"""The metrics there are, read from the registries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from prometheus_client import CollectorRegistry

from ops.metrics import Dependencies, LedgerCollector, Vocabulary, WorkerMetrics, new_registry


def of_workers() -> Iterator[tuple[str, ...]]:
    """Name, type, labels and meaning of what each worker serves."""
    registry = new_registry()
    WorkerMetrics(registry)
    yield from _rows(families(registry))


def of_exporter() -> Iterator[tuple[str, ...]]:
    """The same of what the exporter serves, most of it from the ledger."""
    registry = new_registry()
    Dependencies(registry)
    yield from _rows(families(registry))
    yield from _rows(LedgerCollector(cast("Any", None), Vocabulary(), lambda: 0.0).describe())


def families(registry: CollectorRegistry) -> Iterator[Any]:
    """Whatever is registered. A labelled metric without values tells its labels by a private name only."""
    for collector in registry._collector_to_names:
        for family in collector.collect():
            cast("Any", family)._labelnames = getattr(collector, "_labelnames", ())
            yield family


def _rows(families: Any) -> Iterator[tuple[str, ...]]:
    for family in families:
        if family.name.startswith("runturn_"):
            name = f"{family.name}_total" if family.type == "counter" else family.name
            labels = ", ".join(f"`{label}`" for label in family._labelnames)
            yield f"`{name}`", family.type, labels, family.documentation
