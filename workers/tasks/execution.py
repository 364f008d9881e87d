"""Execution of tasks from the ledger, by Celery's own request and tracer with all they do.

When a turn is claimed, its message has long left the broker (see `workers.worker.strategy`). The ledger has what
matters of it. Celery's request is rebuilt from that, and its tracer calls the body in `definitions`. A task whose
end Celery could not deliver stays in the ledger and is executed again: its body then returns the result at once,
and what was not sent yet is sent, under the same task ids.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import structlog
from celery import Celery, states

from ops.ledger import Waiter
from ops.redaction import Redactor
from workers.errors import Undelivered
from workers.redacted_request import described, named
from workers.tasks import celery_internals, delivery, result_backend
from workers.tasks.celery_request import KeptRequest, ShownRequest
from workers.tasks.delivery import Execution, Outcome
from workers.tasks.hub import Hub
from workers.tasks.kept_message import KeptMessage

log = structlog.get_logger(__name__)


class TaskExecutor:
    """Executes tasks in the threads that call it."""

    def __init__(self, app: Celery, hub: Hub, redactor: Redactor) -> None:
        """`redactor` knows the secrets of this process."""
        self._app = app
        self.consumer: Any = None  # Celery's, once connected; used on its thread
        self._hub = hub
        self._redactor = redactor
        self._hostname = ""
        self._tracers: Mapping[str, Any] = {}
        celery_internals.prepare_queues(app)
        result_backend.prepare(app)
        delivery.install(app)

    def prepare(self, hostname: str) -> None:
        """Build the tasks' tracers; call once they are defined and instrumented, before any is executed."""
        self._hostname = hostname
        self._tracers = celery_internals.turn_tracers(self._app, hostname)

    def show(self, request: ShownRequest, asked: object) -> None:
        """Show a task to monitors without secrets; `asked` is its request, or whatever was sent instead."""
        name = named(request.request_dict.get("shadow"), request.type, self._redactor)
        request.show(name, described(asked, self._redactor))

    def execute(
        self,
        waiter: Waiter,
        work: Callable[[], Outcome],
        asked: object = None,
        *,
        headers: Mapping[str, object] | None = None,
    ) -> Execution:
        """Execute a task. Unless the execution is `done`, the task must be executed again.

        `asked` is the request of its turn if that runs here. `headers` replace those of its message.
        """
        execution = Execution(work, sent=set(waiter.sent))
        try:
            kept = KeptMessage.read(waiter)
            execution.raises, execution.follows = kept.failures_raise, kept.follows
            with delivery.executing(execution):
                self._request(
                    waiter, replace(kept, headers={**kept.headers, **(headers or {})}), asked
                ).execute_here(self._tracers)
            execution.done = True
        except (Undelivered, Exception) as error:
            why = delivery.summary(error)
            log.warning(
                "a task's end will be delivered later", task_id=waiter.task_id, turn_id=waiter.turn_id, error=why
            )
        return execution

    def _request(self, waiter: Waiter, kept: KeptMessage, asked: object) -> KeptRequest:
        """Rebuild Celery's request."""
        shown: list[object] = [{"turn_id": waiter.turn_id}]
        request = KeptRequest(self._app, self._hostname, kept, shown, self._hub.post, self._send)
        if asked is not None:
            self.show(request, asked)
            self._hub.post(lambda: self._look(request))
        return request

    def started(self, waiter: Waiter, where: Mapping[str, object]) -> None:
        """Show that a task's work has started, and where, if the result backend can."""
        if KeptMessage.read(waiter).headers.get("ignore_result"):
            return
        try:
            self._app.backend.store_result(waiter.task_id, dict(where), states.STARTED)
        except Exception as error:  # backends may raise anything; the turn continues
            log.warning("a task's state could not be stored", error=delivery.summary(error))

    def _look(self, request: KeptRequest) -> None:
        """Let autoscaling check whether the pool is full now."""
        if self.consumer is not None:
            for look in self.consumer.on_task_message:
                look(request)

    def _send(self, event: str, **fields: Any) -> None:
        """Post an event to Celery's loop, without secrets that this process knows."""
        redact = self._redactor.text
        safe = {name: redact(value) if isinstance(value, str) else value for name, value in fields.items()}

        def send() -> None:
            dispatcher = self.consumer and self.consumer.event_dispatcher
            if dispatcher and dispatcher.enabled:
                dispatcher.send(event, **safe)

        self._hub.post(send)
