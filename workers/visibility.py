"""Keeps the messages of running turns invisible to other workers, and hands out those of killed workers soon.

The Redis transport gives a message to another worker when it stayed unacked for the visibility timeout; nothing in
Celery or kombu extends it. Left alone, a turn longer than that runs beside itself. Other transports hold a message
for as long as its consumer lives and need none of this.
"""

from __future__ import annotations

import time
from typing import Any

from celery import bootsteps
from celery.worker import state
from kombu.transport.redis import Channel

from workers.brokers import VISIBILITY_TIMEOUT_S

_PERIOD_S = VISIBILITY_TIMEOUT_S / 6


class Visibility(bootsteps.StartStopStep):  # type: ignore[misc]  # Celery has no types
    """A step of Celery's consumer; runs in the thread that owns the broker connection."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, consumer: Any, **kwargs: Any) -> None:
        self._timer: Any = None
        super().__init__(consumer, **kwargs)

    def start(self, consumer: Any) -> None:
        """The consumer is connected."""
        if isinstance(consumer.task_consumer.channel, Channel):
            self._timer = consumer.timer.call_repeatedly(_PERIOD_S, self._refresh, (consumer,))

    def stop(self, _: Any) -> None:
        """The consumer is leaving, or has lost its connection."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _refresh(self, consumer: Any) -> None:
        channel = consumer.task_consumer.channel
        held = [
            request.message.delivery_tag for request in list(state.reserved_requests) if not request.acknowledged
        ]
        with channel.conn_or_acquire() as client:
            if held:
                client.zadd(channel.unacked_index_key, dict.fromkeys(held, time.time()), xx=True)
        # The transport itself looks for abandoned messages only every hundred seconds.
        channel.qos.restore_visible(interval=1)
