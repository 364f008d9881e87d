"""What follows on a turn: tasks of other applications, sent by the tracer that has executed the turn's task."""

from __future__ import annotations

import functools
from typing import Any

from amqp.exceptions import AMQPError, MessageNacked
from celery import Celery
from celery.app.amqp import Queues
from kombu import Exchange, Queue
from kombu.exceptions import OperationalError

from workers.brokers import publish_options
from workers.errors import Undelivered
from workers.tasks import rescue, telling


class _Known(Queues):  # type: ignore[misc]  # Celery has no types
    """The queues that a worker declares and consumes: its own, and none that it only sends to.

    Celery takes each queue that it has sent to for one of the application's: it declares it in its own way, which
    would keep others from declaring theirs, and consumes from it after the next reconnection.
    """

    def __missing__(self, name: str) -> Queue:
        return Queue(name, Exchange("", no_declare=True), routing_key=name, no_declare=True)


def install(app: Celery) -> None:
    """Have what follows on a turn sent now, or later; what others send fails as it does."""
    app.amqp.queues_cls = _Known
    send = app.send_task
    options = publish_options(app.conf.broker_url)

    @functools.wraps(send)
    def send_task(*args: Any, **kwargs: Any) -> Any:
        if not telling():
            return send(*args, **kwargs)
        # An exchange is for whoever listens. A queue has to be there, or will be once its owner declares it.
        asked = kwargs if kwargs.get("exchange") else {**options, **kwargs}
        try:
            return send(*args, **asked)
        except (OperationalError, AMQPError, MessageNacked) as error:
            rescue()
            raise Undelivered(f"broker: {error}") from error

    app.send_task = send_task
