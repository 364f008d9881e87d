"""Celery's worker, run in this process around a `Runtime`."""

from __future__ import annotations

import logging
import os
import threading
import warnings
from typing import Any

import structlog
from celery import Celery, bootsteps, signals
from celery.platforms import SecurityWarning

from workers.brokers.settings import queue_names
from workers.errors import TurnFailed
from workers.tasks import celery_internals, definitions, maps
from workers.tasks.execution import TaskExecutor
from workers.tasks.hub import Hub
from workers.worker import remote_control
from workers.worker.gc_tuning import collect_seldom
from workers.worker.pool import pool_of
from workers.worker.queue_channels import QueueChannels
from workers.worker.runtime import Runtime
from workers.worker.say_command import listen
from workers.worker.strategy import Strategy

_PATIENCE_S = 2.0  # with Celery, once it was told to stop

log = structlog.get_logger(__name__)


class CeleryWorker:
    """One worker process; see `run`."""

    def __init__(self, app: Celery, runtime: Runtime, executor: TaskExecutor, errands: Hub) -> None:
        self._app = app
        self._runtime = runtime
        self._executor = executor
        self._hub = errands
        self._told = threading.Event()
        self._patience = threading.Timer(_PATIENCE_S, self._abandon)
        self._patience.daemon = True

    def run(self, name: str, room: int | tuple[int, int], *, alone: bool) -> int:
        """Work until told to stop; returns the exit status, 0 then. SIGTERM and SIGINT stop it.

        `room` is how many turns at a time, or the most and the least that autoscaling may choose.
        A process that is nothing but a worker (`alone`) ends within 5 s then, even if the broker does not answer.
        """
        self._alone = alone
        self._prepare()
        signals.worker_shutting_down.connect(self._leave)
        worker = self._app.Worker(
            hostname=name,
            queues=queue_names(self._app)[:1],  # the others have channels of their own
            pool=pool_of(self._runtime, self._hub.post),
            **({"concurrency": room} if isinstance(room, int) else {"autoscale": room}),
            quiet=True,
            without_gossip=True,
            without_mingle=True,  # workers here know of each other through the ledger
        )
        self._executor.prepare(name)  # Celery has sent the signals by which instrumentations are set up
        with self._runtime:
            try:
                worker.start()
            except Exception:
                if not self._told.is_set():
                    raise
                # kombu cannot give messages back to a broker that is away; they come back by themselves.
                log.warning("left while the broker was away", exc_info=True)
            self._patience.cancel()
        return 0 if self._told.is_set() else int(worker.exitcode or 0)  # to Celery, Ctrl-C is a failure

    def _prepare(self) -> None:
        definitions.define(self._app, Strategy(self._runtime.admit, self._executor, self._hub))
        maps.define(self._app)
        self._app.steps["consumer"].update((_attending(self._hub), QueueChannels))
        self._app.steps["worker"].add(_leaving(self._runtime))
        remote_control.install(self._runtime)
        listen(self._app, self._runtime.hear)
        signals.setup_logging.connect(leave_logging_alone)
        signals.worker_ready.connect(self._start)
        celery_internals.silence()
        # Celery warns root because of pickle, which is not accepted here.
        warnings.simplefilter("ignore", SecurityWarning)

    def _start(self, **_: object) -> None:
        collect_seldom()
        # Not before its loop runs: only then is it subscribed to what is broadcast, revokes and pings among it.
        self._hub.post(lambda: log.info("worker is ready"))

    def _leave(self, **_: object) -> None:
        again = self._told.is_set()
        self._told.set()  # first of all: the next signal may interrupt this
        log.info("worker stops")
        if again or not self._runtime.finishes:
            self._runtime.drain()
            if self._alone and not self._patience.is_alive():
                self._patience.start()
        else:
            self._runtime.stop()
        self._hub.post(lambda: None)  # Celery's loop may sleep for seconds, whatever it was told

    def _abandon(self) -> None:
        """Leave a Celery that does not come to its end, say because a broker does not answer; nothing is lost."""
        self._runtime.close()
        log.warning("left without the broker's answer")
        os._exit(0)


def _leaving(runtime: Runtime) -> type:
    """A step that tells the runtime whenever the worker stops, also where no signal told it to."""

    class Leave(bootsteps.StartStopStep):  # type: ignore[misc]  # Celery has no types
        requires = ("celery.worker.components:Pool",)

        def stop(self, _: Any) -> None:
            runtime.stop()

        def terminate(self, _: Any) -> None:
            runtime.drain()

    return Leave


def _attending(errands: Hub) -> type:
    """A step that lets Celery's loop be woken."""

    class Attend(bootsteps.StartStopStep):  # type: ignore[misc]  # Celery has no types
        requires = ("celery.worker.consumer.tasks:Tasks",)

        def register_with_event_loop(self, _: Any, hub: Any) -> None:
            errands.attend(hub)

    return Attend


def leave_logging_alone(**_: object) -> None:
    """Celery configures logging unless somebody listens to this signal."""
    logging.getLogger("celery").setLevel(logging.WARNING)
    logging.getLogger("celery.app.trace").addFilter(_is_no_failed_turn)
    for backend in ("base", "database", "redis"):
        logging.getLogger(f"celery.backends.{backend}").addFilter(_tells_no_error)


def _is_no_failed_turn(record: logging.LogRecord) -> bool:
    """Failed turns have a line of their own in the log, and this one would have an agent's words."""
    return not (record.exc_info and isinstance(record.exc_info[1], TurnFailed))


def _tells_no_error(record: logging.LogRecord) -> bool:
    """Not in Celery's words: with the error, it shows what was to be stored, and which turn has failed how."""
    record.exc_info = None
    return True
