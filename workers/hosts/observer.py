"""Counts how tries to connect to hosts end."""

from __future__ import annotations

from ops.metrics import WorkerMetrics
from remote.errors import HostError
from workers.hosts.errors import turn_error


class HostObserver:
    """See `remote.ssh.pool.Observer`."""

    def __init__(self, metrics: WorkerMetrics) -> None:
        self._metrics = metrics

    def connected(self, host: str, seconds: float) -> None:
        """See `Observer`."""
        self._metrics.host_connected(host, seconds)

    def refused(self, host: str, error: HostError) -> None:
        """See `Observer`."""
        self._metrics.host_refused(host, turn_error(error).kind)
