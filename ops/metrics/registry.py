"""Metric registries, and what workers and the exporter both report. Nothing is global."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from importlib.metadata import version

from prometheus_client import CollectorRegistry, Gauge, ProcessCollector, disable_created_metrics

Registered = CollectorRegistry


def new_registry() -> CollectorRegistry:
    """Return a registry with only the metrics of this process and of the build."""
    disable_created_metrics()  # type: ignore[no-untyped-call]  # one unused series per counter and histogram
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    build = Gauge(
        "runturn_build_info", "Versions of runturn and Python; always 1", ["version", "python"], registry=registry
    )
    build.labels(version("runturn"), platform.python_version()).set(1)
    return registry


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
