"""Consumption of a worker's second and further queues, each over its own channel.

With Redis, a channel that never loses a message receives from one queue only (see
`workers.brokers.redis_transport`). A channel also has its own prefetch count, so long tasks in one queue do not
hold up turns in another.
"""

from __future__ import annotations

from typing import Any

import structlog
from celery import bootsteps
from kombu import Consumer

from workers.brokers.settings import connection_errors, queue_names

log = structlog.get_logger(__name__)


class QueueChannels(bootsteps.StartStopStep):  # type: ignore[misc]  # Celery has no types
    """A step of Celery's consumer, which itself consumes the first queue."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, consumer: Any, **kwargs: Any) -> None:
        self._consumers: list[Consumer] = []
        super().__init__(consumer, **kwargs)

    def start(self, consumer: Any) -> None:
        """Consume the queues, now that the consumer is connected."""
        for name in queue_names(consumer.app)[1:]:
            receiver = consumer.app.amqp.TaskConsumer(
                consumer.connection.channel(),
                [consumer.app.amqp.queues[name]],
                on_decode_error=consumer.on_decode_error,
                on_message=consumer.create_task_handler(),
                prefetch_count=consumer.initial_prefetch_count,
            )
            self._consumers.append(receiver)
            receiver.consume()
        set_first = consumer.qos.callback

        def set_all(prefetch_count: int) -> None:
            set_first(prefetch_count=prefetch_count)
            for receiver in self._consumers:
                receiver.qos(prefetch_count=prefetch_count)

        consumer.qos.callback = set_all

    def stop(self, consumer: Any) -> None:
        """Close the channels: the consumer is stopping or has lost its connection."""
        for receiver in self._consumers:
            try:
                receiver.channel.close()
            except (*connection_errors(consumer), *consumer.channel_errors):
                log.debug("the connection was already lost")
        self._consumers.clear()

    shutdown = stop
