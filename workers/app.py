"""The Celery application: names and settings shared by producers and workers.

`app` is this installation's application, for `celery -A workers.app`; it is created on first access.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from celery import Celery

from workers import celery_command
from workers.brokers import serialization
from workers.brokers.settings import (
    NO_RESULTS,
    QUEUE,
    results_url,
    transport_options,
    turn_queue,
)

TASK: Final = "runturn.run_turn"
SESSION_TASK: Final = "runturn.run_session"


def create_app(broker_url: str, result_url: str | None = None, queues: Sequence[str] = (QUEUE,)) -> Celery:
    """Return an application on that broker. Redis also keeps results unless `result_url` names another place.

    RabbitMQ does not: without `result_url`, results are in the ledger only. Turns are sent to the first queue,
    and workers receive them from all queues.
    """
    serialization.install()
    app = Celery("runturn", broker=broker_url, backend=results_url(broker_url, result_url), set_as_current=False)
    app.conf.update(
        task_routes={"runturn.*": {"queue": queues[0]}},
        # Celery's own default, for tasks that follow a turn and whose signatures name no queue.
        task_default_queue="celery",
        task_queues=[turn_queue(name) for name in queues],
        task_serializer=serialization.NAME,
        result_serializer=serialization.NAME,
        event_serializer=serialization.NAME,
        accept_content=[serialization.CONTENT_TYPE],
        # A message leaves the broker only once the ledger has its turn (see `workers.worker.strategy`).
        task_acks_late=True,
        worker_prefetch_multiplier=1,
        worker_autoscaler="workers.worker.pool:TurnAutoscaler",
        worker_consumer="workers.celery_command:refuse_consumer",  # `runturn worker` has its own
        # A turn survives a lost broker connection; cancelling it would throw its work away.
        worker_cancel_long_running_tasks_on_connection_loss=False,
        # After a lost connection, Celery would restore the prefetch count from the acknowledging threads. With
        # RabbitMQ, they deadlock with the consumer, and nothing is acknowledged any more.
        worker_enable_prefetch_count_reduction=False,
        worker_hijack_root_logger=False,
        worker_send_task_events=True,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,  # no limit
        # RabbitMQ closes the channel of a worker that keeps a message too long, e.g. while the ledger is down.
        broker_channel_error_retry=True,
        broker_transport_options=transport_options(broker_url),
        redis_socket_timeout=5.0,  # of the result backend: a hung one blocks threads, but no turns
        redis_socket_connect_timeout=5.0,
        # Where it matters, we retry ourselves and can still shut down: `workers.tasks.delivery`.
        result_backend_transport_options={"retry_policy": {"max_retries": 1}},
    )
    celery_command.guard(app, has_results=app.conf.result_backend != NO_RESULTS)
    return app


def __getattr__(name: str) -> Celery:
    """Return the attribute `app`, built from the settings. Raises SettingsError."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from workers.configured_app import installed_app  # noqa: PLC0415  # it imports this module

    app: Celery = globals().setdefault("app", installed_app())
    return app
