"""Celery's view of a task that a worker received or executes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from types import SimpleNamespace
from typing import Any

from celery import Celery
from celery.app import trace
from celery.concurrency.base import apply_target
from celery.worker import state
from celery.worker.request import Request
from celery.worker.strategy import hybrid_to_proto2, proto1_to_proto2

from adapters.protocol.arguments import Asked, asked
from workers.errors import Undelivered
from workers.tasks import delivery


def decoded(app: Celery, message: Any, body: Any) -> dict[str, Any]:
    """Return a message in version 2 of Celery's protocol, as arguments of a Request."""
    if body is None and "args" not in message.payload:
        return {"body": message.body, "headers": message.headers, "utc": app.uses_utc_timezone()}
    hybrid = "args" in message.payload
    converted = hybrid_to_proto2(message, message.payload) if hybrid else proto1_to_proto2(message, body)
    return dict(zip(("body", "headers", "decoded", "utc"), converted, strict=True))


class ShownRequest(Request):  # type: ignore[misc]  # Celery has no types
    """Celery's view of a task without secrets: for events, Flower and `inspect`.

    Celery's own clients add the repr of all arguments to events, and `inspect` shows the arguments themselves.
    """

    def show(self, name: str, arguments: str) -> None:
        """Show the task with this name and these arguments, whatever its producer wanted shown."""
        self.name = name
        self._argsrepr, self._kwargsrepr = arguments, "{}"

    @cached_property
    def asked(self) -> Asked:
        """Return the task's request, completed by the result of the task that it follows."""
        return asked(self.args or (), self.kwargs or {})

    @property
    def embed(self) -> dict[str, Any]:
        """Return what follows the task."""
        return self._payload[2] or {}

    def info(self, safe: bool = False) -> dict[str, Any]:
        """Return what `inspect` shows."""
        told: dict[str, Any] = super().info(safe=True)
        return told


class KeptRequest(ShownRequest):
    """A task executed here from what the ledger keeps of its message."""

    def __init__(
        self,
        app: Celery,
        hostname: str,
        kept: Any,
        args: list[object],
        post: Callable[[Callable[[], object]], None],
        send: Callable[..., None],
    ) -> None:
        """`post` schedules a call on Celery's thread; `send` sends an event."""
        body: tuple[list[object], dict[str, object], dict[str, Any]] = (args, {}, kept.embed)
        message = SimpleNamespace(headers=kept.headers, body=body, delivery_info={}, properties=kept.properties)
        super().__init__(message, app=app, hostname=hostname, headers=kept.headers, body=body, decoded=True)
        self._post = post
        self._send = send
        self.show(self.type, "()")

    def execute_here(self, tracers: Mapping[str, Any]) -> None:
        """Execute the task in this thread with `turn_tracers`. Raises Undelivered."""
        traced = partial(trace.fast_trace_task, _loc=(tracers, (), self.hostname))

        def apply_async(_: object, **call: Any) -> None:
            apply_target(traced, propagate=(Undelivered,), **call)

        try:
            self.execute_using_pool(SimpleNamespace(apply_async=apply_async))
        except Exception as error:
            delivery.check(error)
            raise
        finally:
            self._post(partial(state.task_ready, self))

    def on_accepted(self, *accepted: Any) -> None:
        """Record the start, on the thread where `inspect` iterates over the tasks."""
        self._post(partial(super().on_accepted, *accepted))

    def revoked(self) -> bool:
        """Return False: revoking a task cancels its turn in the ledger."""
        return False

    def cancel(self, pool: Any, signal: Any = None, emit_retry: bool = True) -> None:
        """Do nothing: a stopping worker always leaves its turns to the next one."""

    def send_event(self, type: str, **fields: Any) -> None:
        """Send an event without its traceback, which is always the same except for the agent's words.

        Monitors learn of retries when a task is received, which happens only once here.
        """
        fields.pop("traceback", None)
        if type == "task-started" and (retries := self.request_dict.get("retries")):
            fields["retries"] = retries
        self._send(type, uuid=self.id, **fields)

    def on_failure(self, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False) -> None:
        """Handle an exception of the body, such as Cancelled."""
        raised = getattr(exc_info.exception, "exc", exc_info.exception)  # it may be wrapped to keep its traceback
        if not isinstance(raised, delivery.Cancelled):
            super().on_failure(exc_info, send_failed_event, return_ok)
        else:
            reason = "expired" if raised.expired else "cancelled"
            self._announce_revoked(reason, not raised.expired, None, raised.expired)
