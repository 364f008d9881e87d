"""Celery's worker, run in this process around a `Runtime`."""

from __future__ import annotations

import logging
import threading
import warnings
from typing import Any

import structlog
from celery import Celery, bootsteps, signals
from celery.concurrency.thread import TaskPool
from celery.exceptions import Ignore, WorkerShutdown
from celery.platforms import SecurityWarning

from adapters.result import TurnResult
from workers.app import TASK
from workers.conclusion import Parked
from workers.run import Left
from workers.runtime import Joined, Runtime
from workers.visibility import Visibility

log = structlog.get_logger(__name__)


def define_task(app: Celery, runtime: Runtime) -> None:
    """Define `runturn.run_turn` on the application; only workers need it."""

    @app.task(name=TASK, bind=True, acks_late=True, max_retries=None, typing=False)  # type: ignore[untyped-decorator]
    def run_turn(task: Any, request: Any) -> TurnResult:
        """Run one turn; the argument is a TurnRequest as a JSON object."""
        outcome = runtime.execute(task.request.id, request)
        match outcome:
            case TurnResult():
                return outcome
            case Parked(message):
                # Not Celery's Retry: it would store that state after the fact, perhaps over the result of a turn
                # that was cancelled meanwhile. The ledger, not the broker, brings the turn back.
                _tell_monitors(task, message)
                raise Ignore
            case Joined():
                raise Ignore  # another delivery of this turn answers for this one, too
            case Left():
                # Neither acked nor rejected: the broker hands the message to the next worker.
                raise WorkerShutdown(0)


def _tell_monitors(task: Any, message: str) -> None:
    try:
        task.send_event("task-retried", retry=False, exception=message)
    except Exception as error:  # transports raise what their servers' clients raise
        log.debug("a retry was not announced", error=repr(error))


class TurnPool(TaskPool):  # type: ignore[misc]  # Celery has no types
    """Celery's threads, each of which waits for one turn."""

    def terminate_job(self, pid: int, signal: int | None = None) -> None:
        """A second Ctrl-C asks for this; the first one has detached from all turns already."""


def run_worker(app: Celery, runtime: Runtime, *, name: str, concurrency: int) -> int:
    """Work until told to stop; returns the exit status, 0 then. SIGTERM and SIGINT detach from running turns."""
    told = threading.Event()

    def leave(**_: object) -> None:
        told.set()
        runtime.drain()

    define_task(app, runtime)
    app.steps["consumer"].add(Visibility)
    app.steps["worker"].add(_draining(runtime))
    signals.setup_logging.connect(_leave_logging_alone)
    signals.worker_ready.connect(_say_ready)
    signals.worker_shutting_down.connect(leave)
    # Celery warns root because of pickle, which is not accepted here.
    warnings.simplefilter("ignore", SecurityWarning)
    worker = app.Worker(
        hostname=name,
        pool=TurnPool,
        concurrency=concurrency,
        quiet=True,
        without_gossip=True,
        without_mingle=True,  # workers here know of each other through the ledger
    )
    with runtime:
        try:
            worker.start()
        except Exception:
            if not told.is_set():
                raise
            # kombu cannot give messages back to a broker that is away; they come back by themselves.
            log.warning("left while the broker was away", exc_info=True)
    return 0 if told.is_set() else int(worker.exitcode or 0)  # to Celery, Ctrl-C is a failure


def _draining(runtime: Runtime) -> type:
    """A step that detaches from running turns whenever the worker stops, also where no signal told it to.

    It is stopped before the pool, which waits for them.
    """

    class Drain(bootsteps.StartStopStep):  # type: ignore[misc]  # Celery has no types
        requires = ("celery.worker.components:Pool",)

        def stop(self, _: Any) -> None:
            runtime.drain()

        terminate = stop

    return Drain


def _leave_logging_alone(**_: object) -> None:
    """Celery configures logging unless somebody listens to this signal."""
    logging.getLogger("celery").setLevel(logging.WARNING)


def _say_ready(**_: object) -> None:
    log.info("worker is ready")
