"""Celery's worker, run in this process around a `Runtime`."""

from __future__ import annotations

import gc
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
from workers.worker.pool import pool_of
from workers.worker.queue_channels import QueueChannels
from workers.worker.runtime import Runtime
from workers.worker.say_command import listen
from workers.worker.strategy import Strategy

_PATIENCE_S = 2.0  # for Celery, once asked to stop
_YOUNG = 20_000  # new objects between collections of the youngest generation
_RARELY = 50  # of these between collections of the next, and of those between collections of the oldest

log = structlog.get_logger(__name__)


class CeleryWorker:
    """One worker process."""

    def __init__(self, app: Celery, runtime: Runtime, executor: TaskExecutor, errands: Hub) -> None:
        self._app = app
        self._runtime = runtime
        self._executor = executor
        self._hub = errands
        self._told = threading.Event()
        self._patience = threading.Timer(_PATIENCE_S, self._abandon)
        self._patience.daemon = True

    def run(self, name: str, room: int | tuple[int, int], *, alone: bool) -> int:
        """Work until stopped by SIGTERM or SIGINT; return the exit status, which is then 0.

        `room` is the number of turns at a time, or the maximum and minimum for autoscaling.
        A process that is only a worker (`alone`) then exits within 5 s, even if the broker does not answer.
        """
        self._alone = alone
        self._prepare()
        signals.worker_shutting_down.connect(self._leave)
        worker = self._app.Worker(
            hostname=name,
            queues=queue_names(self._app)[:1],  # the others have their own channels
            pool=pool_of(self._runtime, self._hub.post),
            **({"concurrency": room} if isinstance(room, int) else {"autoscale": room}),
            quiet=True,
            without_gossip=True,
            without_mingle=True,  # workers find each other through the ledger
        )
        self._executor.prepare(name)  # after Celery's signals, which set up instrumentations
        with self._runtime:
            try:
                worker.start()
            except Exception:
                if not self._told.is_set():
                    raise
                # kombu cannot return messages to a broker that is down; they come back by themselves.
                log.warning("stopped while the broker was down", exc_info=True)
            self._patience.cancel()
        return 0 if self._told.is_set() else int(worker.exitcode or 0)  # Celery counts Ctrl-C as a failure

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
        # Celery warns if run as root, because of pickle; it is not accepted here.
        warnings.simplefilter("ignore", SecurityWarning)

    def _start(self, **_: object) -> None:
        _collect_seldom()
        # Only once its loop runs is it subscribed to broadcasts, including revokes and pings.
        self._hub.post(lambda: log.info("worker is ready"))

    def _leave(self, **_: object) -> None:
        again = self._told.is_set()
        self._told.set()  # first: the next signal may interrupt this
        log.info("worker is stopping")
        if again or not self._runtime.finishes:
            self._runtime.drain()
            if self._alone and not self._patience.is_alive():
                self._patience.start()
        else:
            self._runtime.stop()
        self._hub.post(lambda: None)  # wake Celery's loop, which may sleep for seconds

    def _abandon(self) -> None:
        """Exit although Celery does not, e.g. because a broker does not answer; nothing is lost."""
        self._runtime.close()
        log.warning("stopped without waiting any longer for the broker")
        os._exit(0)


def _collect_seldom() -> None:
    """Make garbage collection rare, and skip all that is loaded by now: a worker keeps it for good.

    Reference counting frees nearly everything here. With a thousand running turns, a collection of the oldest
    generation would scan everything they hold and stop every stream of the process for a third of a second.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, _RARELY, _RARELY)


def _leaving(runtime: Runtime) -> type:
    """Return a step that stops the runtime whenever the worker stops, even without a signal."""

    class Leave(bootsteps.StartStopStep):  # type: ignore[misc]  # Celery has no types
        requires = ("celery.worker.components:Pool",)

        def stop(self, _: Any) -> None:
            runtime.stop()

        def terminate(self, _: Any) -> None:
            runtime.drain()

    return Leave


def _attending(errands: Hub) -> type:
    """Return a step that makes Celery's loop wakeable."""

    class Attend(bootsteps.StartStopStep):  # type: ignore[misc]  # Celery has no types
        requires = ("celery.worker.consumer.tasks:Tasks",)

        def register_with_event_loop(self, _: Any, hub: Any) -> None:
            errands.attend(hub)

    return Attend


def leave_logging_alone(**_: object) -> None:
    """Handle the signal `setup_logging`: without a handler, Celery configures logging."""
    logging.getLogger("celery").setLevel(logging.WARNING)
    logging.getLogger("celery.app.trace").addFilter(_is_no_failed_turn)
    for backend in ("base", "database", "redis"):
        logging.getLogger(f"celery.backends.{backend}").addFilter(_tells_no_error)


def _is_no_failed_turn(record: logging.LogRecord) -> bool:
    """Drop records of failed turns: those have their own log line, and this one would quote the agent."""
    return not (record.exc_info and isinstance(record.exc_info[1], TurnFailed))


def _tells_no_error(record: logging.LogRecord) -> bool:
    """Remove the error: it shows the value to be stored, and how the turn failed."""
    record.exc_info = None
    return True
