"""Registries. Every instance has its own; nothing here is global."""

from __future__ import annotations

import platform
from importlib.metadata import version

from prometheus_client import CollectorRegistry, Gauge, ProcessCollector, disable_created_metrics

Registered = CollectorRegistry


def new_registry() -> CollectorRegistry:
    """A registry that tells of this process and of the build, and nothing else yet."""
    disable_created_metrics()  # type: ignore[no-untyped-call]  # a series for each counter and histogram, which Prometheus does not use
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    build = Gauge("runturn_build_info", "What runs: always 1", ["version", "python"], registry=registry)
    build.labels(version("runturn"), platform.python_version()).set(1)
    return registry
