"""How a worker is put together from its settings."""

from __future__ import annotations

import os
import time

from celery import Celery

from ops.ledger import Ledger
from ops.metrics import WorkerMetrics
from ops.settings import Settings
from ops.state_dir import StateDir
from workers.agents import build_registry
from workers.answers import Answers
from workers.app import send
from workers.bus import Publisher
from workers.configured_hosts import configured_hosts
from workers.equipment import Equipment
from workers.keeper import Keeper
from workers.pump import EventPump
from workers.runtime import Runtime


def build_runtime(
    settings: Settings, state: StateDir, ledger: Ledger, app: Celery, metrics: WorkerMetrics
) -> Runtime:
    """A worker's runtime, not started yet. Raises SettingsError."""
    equipment = Equipment(
        settings=settings,
        ledger=ledger,
        registry=build_registry(settings),
        hosts=configured_hosts(settings, state),
        pump=EventPump(ledger, Publisher(app.conf.broker_url)),
        metrics=metrics,
        environ=os.environ,
    )

    def requeue(turn_id: str) -> None:
        request = ledger.request(turn_id)
        if request is not None:
            send(app, request)

    return Runtime(equipment, Answers(app, ledger), Keeper(ledger, requeue, time.time))
