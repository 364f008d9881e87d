"""runturn's variant of Celery's consumer: the part of a worker that receives messages.

Celery discards what it cannot read; here it is set aside (see `dead_letters`), and nothing in a message can end
the worker.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import structlog
from celery import Celery
from celery.exceptions import WorkerShutdown
from celery.worker.consumer import Consumer
from celery.worker.state import maybe_shutdown
from kombu import Connection, Message

from workers.brokers import amqp_transport, redis_transport
from workers.brokers.settings import OTHERWISE_DECLARED, connection_errors, declared_otherwise
from workers.errors import MessageRefused
from workers.tasks.celery_internals import prefetch_by_consumer, trace_tasks
from workers.worker.consumption import Consumption
from workers.worker.dead_letters import DeadLetters, fail_task, fault, unreadable

# Celery's addition for quorum queues: dozens of exchanges and queues that keep messages until they are due.
# Here, turns wait in the ledger instead.
_UNWANTED = "celery.worker.consumer.delayed_delivery:DelayedDelivery"
_RECONNECT_S = 3.0  # at most between attempts, so that a broker that returns is used at once
_HEARTBEAT_S = 10.0  # of RabbitMQ: without two of them, a connection that was cut silently is given up
_TOGETHER_S = 0.1  # so that events of a short turn are sent together
_SETTING_TO_CHANGE = 2  # exit status

log = structlog.get_logger(__name__)


class TurnConsumer(Consumer):  # type: ignore[misc]  # Celery has no types
    """Receives messages of turns. Workers use the subclass that `install` creates."""

    dead_letters: ClassVar[DeadLetters]
    consumption: ClassVar[Consumption]
    _flush_at = 0.0  # on the monotonic clock: when waiting events are sent

    class Blueprint(Consumer.Blueprint):  # type: ignore[misc]  # as above
        """The consumer's parts."""

        default_steps = tuple(step for step in Consumer.Blueprint.default_steps if step != _UNWANTED)

    def on_connection_error_after_connected(self, exc: Exception) -> None:
        """Reconnect, unless that cannot help."""
        if declared_otherwise(exc):
            log.error(OTHERWISE_DECLARED, error=str(exc))
            raise WorkerShutdown(_SETTING_TO_CHANGE)
        if self.event_dispatcher and self.event_dispatcher.connection:
            # To close it, Celery would wait for the broker's answer.
            with contextlib.suppress(Exception):  # as Celery does with its own
                self.event_dispatcher.connection.collect()
        super().on_connection_error_after_connected(exc)

    def connection_for_write(self, url: str | None = None, heartbeat: int | None = None) -> Connection:
        """Return the connection for events, connected. Their confirmations are not waited for.

        Celery repeats a heartbeat until it is confirmed, and receives nothing meanwhile: RabbitMQ confirms nothing
        while it is short of memory or disk.
        """
        options = {"confirm_publish": False}
        return self.ensure_connected(
            self.app.connection_for_write(url, heartbeat=heartbeat, transport_options=options)
        )

    def ensure_connected(self, conn: Connection) -> Connection:
        """Connect, however long that takes. Celery's own pauses between attempts grow to half a minute."""
        self.first_connection_attempt = False
        return conn.ensure_connection(
            _report_unreachable,
            interval_start=1,
            interval_step=1,
            interval_max=_RECONNECT_S - 1,  # kombu adds the first
            callback=maybe_shutdown,
        )

    def on_ready(self) -> None:
        """Record that the worker consumes its queues, as RabbitMQ has confirmed. Called after each connection."""
        away_s = self.consumption.begin()
        if self.restart_count:
            log.info("turns are received again", after_s=round(away_s, 1))
        super().on_ready()

    def on_close(self) -> None:
        """Record that the subscriptions are gone: the consumer is stopping or has lost its connection."""
        self.consumption.interrupt()
        super().on_close()

    def update_strategies(self) -> None:
        """Set up how tasks are received, with the tracers of instrumentations instead of Celery's own."""
        super().update_strategies()
        trace_tasks(self.app, self.hostname)

    def on_send_event_buffered(self) -> None:
        """Send events a little later: many in one message cost as much as one."""
        now = time.monotonic()
        if self.hub and now >= self._flush_at:
            self._flush_at = now + _TOGETHER_S
            self.hub.call_later(_TOGETHER_S, self._send_events)

    def shutdown(self) -> None:
        """Send waiting events, then shut down. If there are none, a hung broker must not hold up the worker."""
        if time.monotonic() < self._flush_at:
            self._send_events()
        super().shutdown()

    def _send_events(self) -> None:
        if self.event_dispatcher:
            self.event_dispatcher.flush()

    def bury(self, message: Message, reason: str) -> None:
        """Put a message aside, and acknowledge it once the ledger has it. Returns at once."""
        if not message.acknowledged:
            self.dead_letters.bury(message, reason, partial(self._buried, message, reason))

    def _buried(self, message: Message, reason: str) -> None:
        """Fail the message's task for its waiting producer. Called on the thread of dead letters."""
        fail_task(self.app, message, reason)
        self.call_soon(partial(message.ack_log_error, log, self.connection_errors))

    def on_decode_error(self, message: Message, exc: Exception) -> None:
        """Put aside a message whose body cannot be read."""
        self.bury(message, unreadable(message, exc))

    def on_unknown_message(self, body: object, message: Message) -> None:
        """Put aside a message that is not Celery's."""
        self.bury(message, "not a Celery message")

    def on_unknown_task(self, body: object, message: Message, exc: Exception) -> None:
        """Put aside a message for an unknown task."""
        self.bury(message, f"there is no task {message.headers.get('task')!r}")

    def on_invalid_task(self, body: object, message: Message, exc: Exception) -> None:
        """Put aside a message with invalid headers."""
        self.bury(message, f"not a valid task: {exc}")

    def create_task_handler(self, *arguments: Any, **options: Any) -> Callable[[Message], None]:
        """Return the function that is called with each message."""
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


def _report_unreachable(error: Exception, pause_s: float) -> None:
    log.warning("the broker cannot be reached; trying again", error=str(error) or repr(error), pause_s=pause_s)


def install(app: Celery, dead_letters: DeadLetters, consumption: Consumption) -> None:
    """Make the application's workers receive messages this way."""
    redis_transport.install()
    amqp_transport.install()
    app.conf.broker_heartbeat = _HEARTBEAT_S
    prefetch_by_consumer()
    parts = {"dead_letters": dead_letters, "consumption": consumption}
    app.conf.worker_consumer = type("TurnConsumer", (TurnConsumer,), parts)
