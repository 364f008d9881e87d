"""Reception of turns' messages: Celery's strategy for the tasks of `workers.app`.

Celery hands a message to a pool and acknowledges it when the task has ended. Here a message only announces a turn:
it is acknowledged as soon as the ledger has the turn, within milliseconds, and never matters again. So no broker
timeout can hit a running turn, however long it takes, and a duplicate message does no harm.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import structlog
from celery import Celery, signals
from celery.worker import state

from adapters.protocol.request import read_traceparent
from workers.brokers.settings import priority_of
from workers.tasks.celery_request import ShownRequest, decoded
from workers.tasks.execution import TaskExecutor
from workers.tasks.hub import Hub
from workers.tasks.kept_message import keep
from workers.worker.admission import Admitted, Arrival, LeftAlone, Outcome, Unreadable
from workers.worker.remote_control import has_any

Admit = Callable[[Arrival, Callable[[Outcome], None]], None]

log = structlog.get_logger(__name__)


class Strategy:
    """The strategy; Celery calls it with the task, its application and the consumer on each connection."""

    def __init__(self, admit: Admit, executor: TaskExecutor, hub: Hub) -> None:
        """`admit` calls back, from any thread, with what to do with the message."""
        self._admit = admit
        self._executor = executor
        self._hub = hub
        self._in_hand: set[ShownRequest] = set()  # Celery holds only weak references

    def __call__(self, task: Any, app: Celery, consumer: Any) -> Callable[..., None]:
        """Return the function that receives messages from now on."""
        self._executor.consumer = consumer

        def receive(message: Any, body: Any, ack: Any, reject: Any, callbacks: Any) -> None:
            request = ShownRequest(
                message,
                on_ack=ack,
                on_reject=reject,
                app=app,
                hostname=consumer.hostname,
                eventer=consumer.event_dispatcher,
                task=task,
                connection_errors=consumer.connection_errors,
                **decoded(app, message, body),
            )
            self._executor.show(request, request.asked.document)
            self._receive(consumer, request)

        return receive

    def _receive(self, consumer: Any, request: ShownRequest) -> None:
        arrival = _arrival(request.app, request)
        signals.task_received.send(sender=consumer, request=request)
        request.send_event(
            "task-received",
            name=request.name,
            args=request.argsrepr,
            kwargs=request.kwargsrepr,
            root_id=request.root_id,
            parent_id=request.parent_id,
            retries=request.request_dict.get("retries", 0),
            eta=request.eta and request.eta.isoformat(),
            expires=request.expires and request.expires.isoformat(),
        )
        self._in_hand.add(request)
        state.reserved_requests.add(request)  # as Celery records what it holds
        self._admit(
            arrival,
            lambda outcome: self._hub.post(lambda: self._done(consumer, request, outcome)),
        )

    def _done(self, consumer: Any, request: ShownRequest, outcome: Outcome) -> None:
        self._in_hand.discard(request)
        state.reserved_requests.discard(request)
        match outcome:
            case Admitted():
                request.acknowledge()
            case Unreadable(reason):
                consumer.bury(request.message, reason)
            case LeftAlone():
                pass  # the broker delivers it to the next worker


def _arrival(app: Celery, request: ShownRequest) -> Arrival:
    hard, soft = request.time_limits
    follows, message = keep(request)
    limit_s = soft or hard or request.task.soft_time_limit or request.task.time_limit
    return Arrival(
        task=request.type,
        task_id=request.id,
        document=request.asked.document,
        fault=request.asked.fault,
        due_at=request.eta.timestamp() if request.eta is not None else None,
        timeout_ms=math.ceil(limit_s * 1000) if limit_s else None,
        priority=priority_of(app.conf.broker_url, (request.message.properties or {}).get("priority")),
        expires_at=request.expires.timestamp() if request.expires is not None else None,
        revoked=request.id in state.revoked or has_any(request.stamps, state.revoked_stamps),
        traceparent=read_traceparent(request.request_dict.get("traceparent")),
        follows=follows,
        message=message,
    )
