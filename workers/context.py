"""Dependencies shared by all turns of a worker."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from adapters.contract import Adapter
from adapters.protocol.request import TurnRequest
from adapters.registry import Registry
from ops.ledger import Ledger
from ops.metrics import WorkerMetrics
from ops.redaction import Redactor
from ops.settings import Settings
from ops.tracing import Tracing
from ops.transcripts import Archive
from workers.agents.health import AgentHealth
from workers.agents.output_validation import OutputValidator
from workers.agents.probe import AgentReport, look_safely
from workers.events.writer import EventWriter
from workers.hosts.inventory import Hosts, TurnHost
from workers.limits import Moment
from workers.retry import RetryPolicy


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """The ledger, agents, hosts and clocks that turns run with."""

    settings: Settings
    ledger: Ledger
    registry: Registry
    hosts: Hosts
    event_writer: EventWriter
    metrics: WorkerMetrics
    environ: Mapping[str, str]  # the worker's environment, from which variables are forwarded
    clock: Callable[[], float]  # the ledger's
    archive: Archive | None = None  # of transcripts; None: keep none
    tracing: Tracing | None = None  # None: no collector is configured
    # The worker's secrets: its agents run as the same user and can read them.
    secrets: Redactor = field(default_factory=lambda: Redactor({}))
    health: AgentHealth = field(default_factory=AgentHealth)
    outputs: OutputValidator = field(default_factory=OutputValidator)
    monotonic: Callable[[], float] = time.monotonic
    rng: random.Random = field(default_factory=random.SystemRandom)

    def moment(self) -> Moment:
        """Return the current moment."""
        return Moment(self.monotonic(), self.clock())

    async def look(self, host: TurnHost, adapter: Adapter) -> AgentReport:
        """Probe an agent on a host. Never raises, and never takes long."""
        return await look_safely(host, adapter, self.environ, self.settings)

    def policy(self, request: TurnRequest) -> RetryPolicy:
        """Return a request's retry policy, completed by the operator's defaults."""
        agent, paid = self.settings.agent, request.max_paid_retries
        return RetryPolicy(
            max_attempts=request.max_attempts or agent.max_attempts,
            max_paid_retries=agent.max_paid_retries if paid is None else paid,
            base_s=agent.retry_backoff_ms / 1000,
            max_s=(request.max_retry_backoff_ms or agent.max_retry_backoff_ms) / 1000,
        )
