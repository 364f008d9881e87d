"""Metric registries. Each instance is separate; nothing is global."""

from __future__ import annotations

import platform
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
