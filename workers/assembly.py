"""How a worker is put together from its settings."""

from __future__ import annotations

import os
import time

from celery import Celery
from celery.worker.state import revoked as revoked_tasks

from ops.ledger import Ledger
from ops.metrics import WorkerMetrics
from ops.redaction import Redactor
from ops.settings import Settings
from ops.state_dir import StateDir
from workers.agents import build_registry
from workers.announcer import Announcer
from workers.answers import Answers
from workers.bus import Publisher
from workers.celery_worker import CeleryWorker
from workers.configured_hosts import configured_hosts
from workers.equipment import Equipment
from workers.errands import Errands
from workers.keeper import Keeper
from workers.pump import EventPump
from workers.runtime import Runtime


def build_worker(
    settings: Settings, state: StateDir, ledger: Ledger, app: Celery, metrics: WorkerMetrics, *, finishes: bool
) -> CeleryWorker:
    """A worker, not started yet. `finishes`: when it is to stop, it waits for its turns. Raises SettingsError."""
    equipment = Equipment(
        settings=settings,
        ledger=ledger,
        registry=build_registry(settings),
        hosts=configured_hosts(settings, state),
        pump=EventPump(ledger, Publisher(app.conf.broker_url)),
        metrics=metrics,
        environ=os.environ,
    )
    errands = Errands()
    announcer = Announcer(app, errands, Redactor.of_environment({**settings.secrets, **os.environ}))
    answers = Answers(app, ledger, announcer.told, revoked_tasks)
    hosts = {host.name: host.labels for host in equipment.hosts}
    keeper = Keeper(ledger, hosts, answers.give_late, time.time)
    runtime = Runtime(equipment, answers, keeper, announcer, finishes=finishes)
    return CeleryWorker(app, runtime, announcer, errands)
