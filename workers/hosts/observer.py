"""Metrics of connections to hosts."""

from __future__ import annotations

from ops.metrics import WorkerMetrics
from remote.errors import HostError
from workers.hosts.errors import turn_error


class HostObserver:
    """A `remote.ssh.pool.Observer` that counts connections and refusals."""

    def __init__(self, metrics: WorkerMetrics) -> None:
        self._metrics = metrics

    def connected(self, host: str, seconds: float) -> None:
        """Count a connection."""
        self._metrics.host_connected(host, seconds)

    def refused(self, host: str, error: HostError) -> None:
        """Count a refusal by its error kind."""
        self._metrics.host_refused(host, turn_error(error).kind)
