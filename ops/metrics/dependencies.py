"""Reachability of the dependencies of workers and the exporter."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry, Gauge


class Dependencies:
    """The metric `runturn_dependency_up`, one per registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._up = Gauge(
            "runturn_dependency_up", "1 if the broker or ledger answers, else 0", ["dependency"], registry=registry
        )

    def watch(self, dependencies: Mapping[str, Callable[[], bool]]) -> None:
        """Report these dependencies by name."""
        for name, answers in dependencies.items():
            self._up.labels(name).set_function(answers)
