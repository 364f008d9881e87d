"""Celery's consumer as runturn has it: the part of a worker that receives messages.

Celery throws away what it cannot read; here it is put aside (see `dead_letters`), and nothing in a message
ends the worker.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

import structlog
from amqp.exceptions import PreconditionFailed
from celery import Celery, bootsteps
from celery.app.task import Context
from celery.exceptions import WorkerShutdown
from celery.worker.consumer import Consumer
from kombu import Consumer as QueueConsumer
from kombu import Message

from workers.brokers import redis_transport
from workers.brokers.settings import OTHERWISE_DECLARED, connection_errors, dead_queue, queue_names
from workers.errors import MessageRefused
from workers.tasks.celery_internals import prefetch_by_consumer, trace_tasks
from workers.worker.dead_letters import DeadLetters, fault, given_up, unreadable

# What Celery starts with a quorum queue: dozens of exchanges and queues that hold messages until they are due.
# Turns that wait, wait in the ledger.
_UNWANTED = "celery.worker.consumer.delayed_delivery:DelayedDelivery"
_PREFETCH = 10
_TOGETHER_S = 0.1  # events of a short turn wait for each other
_SETTING_TO_CHANGE = 2  # exit status

log = structlog.get_logger(__name__)


class TurnConsumer(Consumer):  # type: ignore[misc]  # Celery has no types
    """Receives messages of turns. Workers use the class that `install` makes of it."""

    dead_letters: ClassVar[DeadLetters]
    _flush_at = 0.0  # by the monotonic clock: when events are sent that wait

    class Blueprint(Consumer.Blueprint):  # type: ignore[misc]  # as above
        """The consumer's parts."""

        default_steps = (
            *(step for step in Consumer.Blueprint.default_steps if step != _UNWANTED),
            "workers.worker.consumer:DeadQueue",
        )

    def on_connection_error_after_connected(self, exc: Exception) -> None:
        """Connect again, unless that is of no use."""
        if isinstance(exc, PreconditionFailed) and exc.method_name == "Queue.declare":
            log.error(OTHERWISE_DECLARED, error=exc.reply_text)
            raise WorkerShutdown(_SETTING_TO_CHANGE)
        super().on_connection_error_after_connected(exc)

    def update_strategies(self) -> None:
        """Have tasks received, and traced by what instrumentations have put in the place of Celery's tracer."""
        super().update_strategies()
        trace_tasks(self.app, self.hostname)

    def on_send_event_buffered(self) -> None:
        """Send events a little later: many of them in one message cost as much as one."""
        now = time.monotonic()
        if self.hub and now >= self._flush_at:
            self._flush_at = now + _TOGETHER_S
            self.hub.call_later(_TOGETHER_S, self._send_events)

    def shutdown(self) -> None:
        """Leave, once the events are sent that wait. If none do, no broker that hangs is to hold up the worker."""
        if time.monotonic() < self._flush_at:
            self._send_events()
        super().shutdown()

    def _send_events(self) -> None:
        if self.event_dispatcher:
            self.event_dispatcher.flush()

    def bury(self, message: Message, reason: str) -> None:
        """Put a message aside, and acknowledge it when the ledger has it. Returns at once."""
        if not message.acknowledged:
            self.dead_letters.bury(message, reason, partial(self._buried, message, reason))

    def _buried(self, message: Message, reason: str) -> None:
        """On the thread of dead letters: have whoever waits for the task hear of it."""
        headers = message.headers if isinstance(message.headers, Mapping) else {}
        task_id = headers.get("id")
        if "task" in headers and isinstance(task_id, str) and task_id and not headers.get("ignore_result"):
            properties = message.properties or {}
            replies = Context({name: properties.get(name) for name in ("reply_to", "correlation_id")})
            try:
                self.app.backend.mark_as_failure(task_id, MessageRefused(reason), request=replies)
            except Exception as error:  # the result backend is away, and the ledger has it
                log.warning("a producer does not hear of its message", task_id=task_id, error=str(error))
        self.call_soon(partial(message.ack_log_error, log, self.connection_errors))

    def on_decode_error(self, message: Message, exc: Exception) -> None:
        """The body cannot be read."""
        self.bury(message, unreadable(message, exc))

    def on_unknown_message(self, body: object, message: Message) -> None:
        """It is no message of Celery's."""
        self.bury(message, "not a Celery message")

    def on_unknown_task(self, body: object, message: Message, exc: Exception) -> None:
        """It is for somebody else."""
        self.bury(message, f"there is no task {message.headers.get('task')!r}")

    def on_invalid_task(self, body: object, message: Message, exc: Exception) -> None:
        """Its headers make no sense."""
        self.bury(message, f"not a valid task: {exc}")

    def create_task_handler(self, *arguments: Any, **options: Any) -> Callable[[Message], None]:
        """What is called with each message."""
        receive = super().create_task_handler(*arguments, **options)
        of_broker = (*connection_errors(self), *self.channel_errors)

        def received(message: Message) -> None:
            if reason := fault(message):
                self.bury(message, reason)
                return
            try:
                receive(message)
            except of_broker:
                raise
            except MessageRefused as error:
                self.bury(message, str(error))
            except Exception as error:
                log.exception("a message could not be received")
                self.bury(message, f"it could not be received: {type(error).__name__}: {error}")

        return received


class DeadQueue(bootsteps.StartStopStep):  # type: ignore[misc]  # as above
    """Brings what RabbitMQ has given up on into the ledger."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, consumer: Any, **kwargs: Any) -> None:
        self._consumer: QueueConsumer | None = None
        super().__init__(consumer, **kwargs)

    def start(self, consumer: TurnConsumer) -> None:
        """The consumer is connected."""
        if consumer.connection.transport.driver_type == "amqp":
            self._consumer = QueueConsumer(
                consumer.connection.channel(),
                [dead_queue(name) for name in queue_names(consumer.app)],
                on_message=lambda message: consumer.bury(message, given_up(message)),
                prefetch_count=_PREFETCH,
            )
            self._consumer.consume()

    def stop(self, consumer: TurnConsumer) -> None:
        """The consumer is leaving, or has lost its connection."""
        if self._consumer is not None:
            try:
                self._consumer.channel.close()
            except (*connection_errors(consumer), *consumer.channel_errors):
                log.debug("the connection was gone")
            self._consumer = None

    shutdown = stop


def install(app: Celery, dead_letters: DeadLetters) -> None:
    """Have the application's workers receive messages this way."""
    redis_transport.install()
    prefetch_by_consumer()
    app.conf.worker_consumer = type("TurnConsumer", (TurnConsumer,), {"dead_letters": dead_letters})
