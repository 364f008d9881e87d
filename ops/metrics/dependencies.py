"""Whether what a process needs answers: the same for workers and the exporter."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry, Gauge


class Dependencies:
    """The metric `runturn_dependency_up`. Once a registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._up = Gauge(
            "runturn_dependency_up", "Whether the broker or the ledger answers", ["dependency"], registry=registry
        )

    def watch(self, dependencies: Mapping[str, Callable[[], bool]]) -> None:
        """Tell of these, by name."""
        for name, answers in dependencies.items():
            self._up.labels(name).set_function(answers)
