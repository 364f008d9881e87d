"""How a worker is put together from its settings."""

from __future__ import annotations

import os
import time

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
from workers.context import Equipment
from workers.events.bus import Publisher
from workers.events.writer import EventPump
from workers.hosts.from_settings import configured_hosts
from workers.tasks.execution import Executor
from workers.tasks.hub import Errands
from workers.tasks.waiting import TurnTasks
from workers.worker.claims import Keeper
from workers.worker.loop_lag import Beat
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
    """A worker, not started yet, which shows itself in `registry` and `health`. Raises SettingsError.

    `finishes`: when it is to stop, it waits for its turns.
    """
    agents = build_registry(settings)
    report_failed(agents)
    metrics = WorkerMetrics(registry, Vocabulary(agents, settings.queues[0]))
    equipment = Equipment(
        settings=settings,
        ledger=ledger,
        registry=agents,
        hosts=configured_hosts(settings, state, metrics),
        pump=EventPump(ledger, Publisher(app.conf.broker_url)),
        metrics=metrics,
        environ=os.environ,
        tracing=Tracing.of_environment(os.environ),
        archive=Archive.at(url.get_secret_value()) if (url := settings.transcripts_url) else None,
        secrets=Redactor.of_withheld({**settings.secrets, **os.environ}),
    )
    errands = Errands()
    executor = Executor(app, errands, equipment.secrets)
    tasks = TurnTasks(executor, ledger, tracing=equipment.tracing)
    hosts = {host.name: host.labels for host in equipment.hosts}
    keeper = Keeper(ledger, hosts, tasks.give_late, time.time)
    beat = Beat()
    runtime = Runtime(equipment, tasks, keeper, beat, finishes=finishes)
    _show(runtime, keeper, beat, metrics, health)
    return CeleryWorker(app, runtime, executor, errands)


def _show(runtime: Runtime, keeper: Keeper, beat: Beat, metrics: WorkerMetrics, health: Health) -> None:
    """Have the worker's own state in its metrics and its health."""
    health.unready_if("stopping", lambda: "it takes no more turns" if runtime.leaving else None)
    health.unready_if("event_loop", beat.slow)
    health.dead_if("event_loop", beat.stuck)
    metrics.watch_load(lambda: 0 if runtime.leaving else runtime.slots, lambda: keeper.idle_s)
    metrics.watch_health(beat.lag_s, health.dependencies)
