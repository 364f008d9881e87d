"""Undocumented parts of Celery: how a worker traces tasks, declares queues, prefetches and writes to a terminal.

Others are used by `celery_request`, `result_backend` and `redis_transport` only.
`tests/unit/workers/test_private_names.py` lists them all, and fails if a version of Celery changes one.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from celery import Celery
from celery.app import trace
from celery.app.amqp import Queues
from celery.apps import worker as celery_cli
from celery.worker.consumer import tasks
from kombu import Exchange, Queue

from workers.app import SESSION_TASK, TASK
from workers.tasks import delivery


class _End(trace.TraceInfo):  # type: ignore[misc]  # Celery has no types
    """The end of an execution, for Celery's tracer."""

    def handle_failure(self, task: Any, req: Any, **options: Any) -> Any:
        """Store that the task failed, unless only the delivery of its end did."""
        delivery.check(self.retval)
        return super().handle_failure(task, req, **options)


class _Queues(Queues):  # type: ignore[misc]  # as above
    """The queues that a worker declares and consumes: its own, and none that it only sends to.

    Celery treats each queue it has sent to as one of the application's: it declares the queue its own way, which
    keeps the owner from declaring it differently, and consumes from it after the next reconnection.
    """

    def __missing__(self, name: str) -> Queue:
        return Queue(name, Exchange("", no_declare=True), routing_key=name, no_declare=True)


def prepare_queues(app: Celery) -> None:
    """Make the worker declare its own queues only; call before anything uses them."""
    app.amqp.queues_cls = _Queues


def turn_tracers(app: Celery, hostname: str) -> Mapping[str, Any]:
    """Return the tracers that execute the tasks of turns, built by Celery or an instrumentation that replaces it.

    They are not stored on the tasks: a consumer builds Celery's own tracers there on each connection.
    """
    return {
        name: SimpleNamespace(
            __trace__=trace.build_tracer(name, app.tasks[name], app.loader, hostname, Info=_End, app=app)
        )
        for name in (TASK, SESSION_TASK)
    }


def trace_tasks(app: Celery, hostname: str) -> None:
    """Trace an operator's own tasks the same way; call after a consumer has built its tracers."""
    for name, task in app.tasks.items():
        tracer = trace.build_tracer(name, task, app.loader, hostname, Info=_End, app=app)
        task.__trace__ = getattr(task, "repeating", lambda once: once)(tracer)


def silence() -> None:
    """Keep Celery from writing to a terminal when it stops.

    The text is not a log line, and is wrong here: a second Ctrl-C does not terminate agents.
    """
    celery_cli.safe_say = lambda *_, **__: None
    warnings.filterwarnings("ignore", "Exception raised outside body", RuntimeWarning)  # see `delivery`


def prefetch_by_consumer() -> None:
    """Set no channel-wide prefetch: quorum queues refuse it, and here each channel has one consumer.

    Celery detects quorum queues by their arguments, but a virtual host can also make a queue one by default.
    """
    tasks.Tasks.qos_global = lambda *_: False
