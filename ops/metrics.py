"""What Prometheus reads. Every instance has its own registry; nothing here is global."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from ops.errors import LedgerUnavailable, PortTaken
from ops.ledger import Ledger, Totals

# A turn takes from a second to hours.
_DURATION_BUCKETS = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200)

log = structlog.get_logger(__name__)


def new_registry() -> CollectorRegistry:
    """An empty registry."""
    return CollectorRegistry()


class WorkerMetrics:
    """What one worker process saw. Its labels take few values: never a prompt, a path or an id."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._turns = Counter(
            "runturn_turns", "Turns settled", ["agent", "launcher", "outcome"], registry=registry
        )
        self._duration = Histogram(
            "runturn_turn_duration_seconds",
            "From the claim of a turn to its settlement, in this worker",
            ["agent"],
            buckets=_DURATION_BUCKETS,
            registry=registry,
        )
        self._in_flight = Gauge("runturn_turns_in_flight", "Turns that this worker owns", registry=registry)
        self._retries = Counter(
            "runturn_turn_retries", "Attempts that ended in another try", ["agent", "reason"], registry=registry
        )
        self._malformed = Counter(
            "runturn_malformed_events", "Lines of agents that could not be read", ["agent"], registry=registry
        )

    def turn_claimed(self) -> None:
        """A turn is in hand."""
        self._in_flight.inc()

    def turn_let_go(self) -> None:
        """A turn is not in hand any more, for whatever reason."""
        self._in_flight.dec()

    def turn_settled(self, agent: str, launcher: str, outcome: str, seconds: float) -> None:
        """A turn has its result. `launcher`: local or ssh; `outcome`: completed or an error kind."""
        self._turns.labels(agent, launcher, outcome).inc()
        self._duration.labels(agent).observe(seconds)

    def turn_retried(self, agent: str, reason: str) -> None:
        """An attempt failed, another one follows. `reason`: an error kind."""
        self._retries.labels(agent, reason).inc()

    def lines_malformed(self, agent: str, lines: int) -> None:
        """An agent printed what could not be read."""
        self._malformed.labels(agent).inc(lines)


class LedgerCollector(Collector):
    """Tokens and money of the whole fleet, from the ledger: they survive every crash and are never estimates.

    Serve them once per ledger, or sums over instances will count them several times.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def collect(self) -> Iterable[Metric]:
        """Read the totals. A ledger that is away leaves a hole in the series, not the metrics page in ruins."""
        try:
            return _families(self._ledger.totals())
        except LedgerUnavailable as error:
            log.warning("metrics without the ledger", error=str(error))
            return _families(Totals((), ()))

    def describe(self) -> Iterable[Metric]:
        """The names, without asking the ledger."""
        return _families(Totals((), ()))


def _families(totals: Totals) -> list[Metric]:
    tokens = CounterMetricFamily("runturn_tokens", "Billed tokens", labels=["agent", "model", "type"])
    cost = CounterMetricFamily("runturn_cost_usd", "Cost of tokens with a known price", labels=["agent", "model"])
    for row in totals.models:
        if row.observed:
            kinds = {
                "input": row.tokens.input_tokens,
                "output": row.tokens.output_tokens,
                "cache_read": row.tokens.cache_read_input_tokens,
                "cache_creation": row.tokens.cache_creation_input_tokens,
            }
            for kind, count in kinds.items():
                tokens.add_metric([row.agent, row.model, kind], count)
            if row.cost_usd is not None:  # unpriced is not $0
                cost.add_metric([row.agent, row.model], row.cost_usd)
    return [tokens, cost]


class MetricsServer:
    """Serves a registry at `/metrics` until it is closed."""

    def __init__(self, registry: CollectorRegistry, host: str, port: int) -> None:
        """Listen on `port`, 0 for any free one; raises PortTaken."""
        try:
            self._server, self._thread = start_http_server(port, addr=host, registry=registry)
        except OSError as error:
            raise PortTaken(
                f"metrics cannot be served at {host}:{port}: {error.strerror}; "
                "set RUNTURN_METRICS_PORT to another port, or to 0 for any free one"
            ) from error
        self.port = int(self._server.server_port)
        self.url = f"http://{host}:{self.port}/metrics"

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
