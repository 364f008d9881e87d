"""Construction of a worker from its settings."""

from __future__ import annotations

import os

from celery import Celery

from ops.health import Health
from ops.ledger import Ledger
from ops.metrics import Registered, Vocabulary, WorkerMetrics
from ops.redaction import Redactor
from ops.settings import Settings
from ops.settings.state_dir import StateDir
from ops.tracing import Tracing
from ops.transcripts import Archive
from workers.agents.registry import build_registry, report_failed
from workers.context import WorkerContext
from workers.events.bus import Publisher
from workers.events.writer import EventWriter
from workers.hosts.from_settings import configured_hosts
from workers.tasks.execution import TaskExecutor
from workers.tasks.hub import Hub
from workers.tasks.waiting import WaitingTasks
from workers.worker.claims import ClaimKeeper
from workers.worker.clock_watch import ClockWatch
from workers.worker.loop_lag import LoopLag
from workers.worker.process import CeleryWorker
from workers.worker.runtime import Runtime


def build_worker(
    settings: Settings,
    state: StateDir,
    ledger: Ledger,
    app: Celery,
    registry: Registered,
    health: Health,
    *,
    finishes: bool,
) -> CeleryWorker:
    """Return a worker, not started yet, that reports to `registry` and `health`. Raises SettingsError.

    `finishes`: when stopped, it waits for its turns.
    """
    agents = build_registry(settings)
    report_failed(agents)
    metrics = WorkerMetrics(registry, Vocabulary(agents, settings.queues[0]))
    context = WorkerContext(
        settings=settings,
        ledger=ledger,
        registry=agents,
        hosts=configured_hosts(settings, state, metrics),
        event_writer=EventWriter(ledger, Publisher(app.conf.broker_url)),
        metrics=metrics,
        environ=os.environ,
        clock=ledger.clock,
        tracing=Tracing.of_environment(os.environ),
        archive=Archive.at(url.get_secret_value()) if (url := settings.transcripts_url) else None,
        secrets=Redactor.of_withheld({**settings.secrets, **os.environ}),
    )
    hub = Hub()
    executor = TaskExecutor(app, hub, context.secrets)
    tasks = WaitingTasks(executor, ledger, ledger.clock, context.tracing)
    hosts = {host.name: host.labels for host in context.hosts}
    watch = ClockWatch(ledger.clock)

    def make_rounds(now: float) -> None:
        watch.look()
        tasks.give_late(now)

    claim_keeper = ClaimKeeper(ledger, hosts, make_rounds, ledger.clock.read)
    beat = LoopLag()
    runtime = Runtime(context, tasks, claim_keeper, beat, finishes=finishes)
    _show(runtime, claim_keeper, beat, metrics, health)
    health.unready_if("clock", watch.problem)
    metrics.watch_clock(lambda: ledger.clock.off_s)
    return CeleryWorker(app, runtime, executor, hub)


def _show(
    runtime: Runtime, claim_keeper: ClaimKeeper, beat: LoopLag, metrics: WorkerMetrics, health: Health
) -> None:
    """Show the worker's state in its metrics and health."""
    health.unready_if("stopping", lambda: "it takes no more turns" if runtime.leaving else None)
    health.unready_if("event_loop", beat.slow)
    health.dead_if("event_loop", beat.stuck)
    metrics.watch_load(lambda: 0 if runtime.leaving else runtime.slots, lambda: claim_keeper.idle_s)
    metrics.watch_health(beat.lag_s, health.dependencies)
