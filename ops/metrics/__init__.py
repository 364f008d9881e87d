"""Prometheus metrics: those that each worker observes, and those of the whole fleet, from the ledger.

To add a metric: add it to `WorkerMetrics` (`worker.py`) and observe it where it happens, for example in
`workers/turn/metrics.py`; or add it to `LedgerCollector` (`fleet.py`). Give it a panel in
`tests/tools/dashboards/boards`, and run `make dashboards docs`; a test lists metrics without a panel. Every label
takes few values: never a prompt, a path or an id.
"""

from ops.metrics.fleet import LedgerCollector, exported
from ops.metrics.labels import OTHER, Vocabulary
from ops.metrics.registry import Dependencies, Registered, new_registry
from ops.metrics.worker import TURN_BUCKETS_S, SettledTurn, WorkerMetrics

__all__ = [
    "OTHER",
    "TURN_BUCKETS_S",
    "Dependencies",
    "LedgerCollector",
    "Registered",
    "SettledTurn",
    "Vocabulary",
    "WorkerMetrics",
    "exported",
    "new_registry",
]
