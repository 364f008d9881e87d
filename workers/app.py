"""The Celery application: names and settings that producers and workers share.

`app` is that of this installation, for `celery -A workers.app`; it is made when somebody asks for it.
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
    """An application on that broker. A Redis keeps results, too, unless `result_url` names another place.

    A RabbitMQ does not: without `result_url`, results are in the ledger only. Turns are sent to the first of the
    queues, and workers receive them from all.
    """
    serialization.install()
    app = Celery("runturn", broker=broker_url, backend=results_url(broker_url, result_url), set_as_current=False)
    app.conf.update(
        task_routes={"runturn.*": {"queue": queues[0]}},
        # Where Celery sends what follows on a turn, unless its signature names a queue: Celery's own default.
        task_default_queue="celery",
        task_queues=[turn_queue(name) for name in queues],
        task_serializer=serialization.NAME,
        result_serializer=serialization.NAME,
        event_serializer=serialization.NAME,
        accept_content=[serialization.CONTENT_TYPE],
        # A message leaves the broker when the ledger has its turn (see `workers.worker.strategy`), not before.
        task_acks_late=True,
        worker_prefetch_multiplier=1,
        worker_autoscaler="workers.worker.pool:TurnAutoscaler",
        worker_consumer="workers.celery_command:refuse_consumer",  # `runturn worker` has its own
        # A turn survives a lost broker connection; cancelling it would throw its work away.
        worker_cancel_long_running_tasks_on_connection_loss=False,
        # After a lost connection, Celery would widen the prefetch again from the threads that acknowledge: with
        # RabbitMQ, those and the consumer wait for each other's answers, and nothing is acknowledged any more.
        worker_enable_prefetch_count_reduction=False,
        worker_hijack_root_logger=False,
        worker_send_task_events=True,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,  # for as long as it takes
        # RabbitMQ closes the channel of a worker that holds a message for too long, say while the ledger is away.
        broker_channel_error_retry=True,
        broker_transport_options=transport_options(broker_url),
        redis_socket_timeout=5.0,  # of the result backend: one that hangs holds up threads, if no turn
        redis_socket_connect_timeout=5.0,
        # Where it counts, we try again ourselves, and may be told to leave meanwhile: `workers.tasks.delivery`.
        result_backend_transport_options={"retry_policy": {"max_retries": 1}},
    )
    celery_command.guard(app, has_results=app.conf.result_backend != NO_RESULTS)
    return app


def __getattr__(name: str) -> Celery:
    """The attribute `app`, by the settings. Raises SettingsError."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from workers.configured_app import installed_app  # noqa: PLC0415  # it needs what stands here

    app: Celery = globals().setdefault("app", installed_app())
    return app
