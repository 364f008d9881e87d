"""The Celery application: names and settings that producers and workers share."""

from __future__ import annotations

from typing import Final

from celery import Celery

from adapters.request import TurnRequest
from workers import serialization
from workers.brokers import transport_options

TASK: Final = "runturn.run_turn"
QUEUE: Final = "runturn"


def create_app(broker_url: str, result_url: str | None = None) -> Celery:
    """An application on that broker. Results are kept there too unless `result_url` names another place."""
    serialization.install()
    app = Celery("runturn", broker=broker_url, backend=result_url or broker_url, set_as_current=False)
    app.conf.update(
        task_default_queue=QUEUE,
        task_serializer=serialization.NAME,
        result_serializer=serialization.NAME,
        accept_content=[serialization.CONTENT_TYPE],
        # A message leaves the broker when the ledger has its turn (see `workers.reception`), not before.
        task_acks_late=True,
        worker_prefetch_multiplier=1,
        # A turn survives a lost broker connection; cancelling it would throw its work away.
        worker_cancel_long_running_tasks_on_connection_loss=False,
        worker_hijack_root_logger=False,
        worker_send_task_events=True,
        task_send_sent_event=True,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,  # for as long as it takes
        broker_transport_options=transport_options(broker_url),
        # Where it counts, we try again ourselves, and may be told to leave meanwhile (see `workers.answers`).
        result_backend_transport_options={"retry_policy": {"max_retries": 1}},
    )
    return app


def send(app: Celery, request: TurnRequest) -> None:
    """Send a turn's message. Raises kombu's OperationalError."""
    # The agent is always named: workers put their own default in its place if it is not.
    named = {"turn_id": request.turn_id, "agent": request.agent}
    handle = app.send_task(
        TASK,
        args=[request.model_dump(mode="json", exclude_defaults=True) | named],
        task_id=request.turn_id,
        argsrepr=described(request),
    )
    handle.backend = None  # nobody waits on it, and its destructor would talk to the broker


def described(request: TurnRequest) -> str:
    """A request as monitors and logs may show it: without its prompt."""
    return f"({request.agent} on {request.host or 'any host'})"
