"""Tells Celery, and through it Flower and `inspect`, what becomes of turns.

A turn may run in another worker than the one that received its message, or long after that message. So Celery's
view of a running turn, a `Request`, is made here when the turn starts, and holds no more of what was asked than
`workers.description` shows.
Everything happens on the thread of Celery's loop; calls from other threads are posted there.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count
from types import SimpleNamespace
from typing import Any

from celery import Celery
from celery.worker import state

from adapters.result import TurnResult
from adapters.session_result import SessionResult
from ops.ledger import Claim
from ops.redaction import Redactor
from workers.app import TASK
from workers.description import described
from workers.errands import Errands
from workers.shown_request import ShownRequest


class Announcer:
    """Celery's requests of the turns that run here. All methods may be called from any thread."""

    def __init__(self, app: Celery, errands: Errands, redactor: Redactor) -> None:
        """`redactor` knows the secrets of this process."""
        self.consumer: Any = None  # Celery's, once it is connected; on its thread
        self._app = app
        self._errands = errands
        self._redactor = redactor
        self._requests: dict[str, ShownRequest] = {}
        self._turns: dict[int, str] = {}  # by number: to Celery, the process that a turn runs in
        self._numbers = count(1)

    def described(self, asked: object) -> str:
        """What monitors see of a request, or of what was sent in place of one."""
        return described(asked, self._redactor)

    def started(self, claim: Claim) -> None:
        """A turn is worked on here."""
        # Without the request: while the broker is away, this waits.
        turn_id, shown, attempts = claim.turn_id, self.described(claim.request), len(claim.attempts)
        self._post(lambda: self._start(turn_id, shown, attempts))

    def parked(self, turn_id: str, message: str) -> None:
        """It comes back later."""
        kind = message.partition(":")[0]  # the rest may be an agent's words
        self._post(lambda: self._end(turn_id, "task-retried", exception=kind))

    def settled(self, result: TurnResult) -> None:
        """It has its result."""
        turn_id, shown = result.turn_id, repr(result)
        self._post(lambda: self._succeed(turn_id, shown))

    def let_go(self, turn_id: str) -> None:
        """It is not worked on here any more, and another worker tells the rest."""
        self._post(lambda: self._end(turn_id, None))

    def told(self, task_id: str, result: TurnResult | SessionResult) -> None:
        """A task other than the turn's own has its result, too."""
        if isinstance(result, SessionResult) or task_id != result.turn_id:
            shown = repr(result)
            self._post(lambda: self._send("task-succeeded", task_id, result=shown, runtime=0.0))

    def turn(self, number: int) -> str | None:
        """The turn that Celery calls by a number."""
        return self._turns.get(number)

    @property
    def numbers(self) -> list[int]:
        """What Celery calls the turns that run here."""
        return list(self._turns)

    def _post(self, call: Callable[[], object]) -> None:
        self._errands.post(call)

    def _start(self, turn_id: str, shown: str, attempts: int) -> None:
        if self.consumer is None:
            return
        self._end(turn_id, None)  # claimed again, by the worker that had it before
        number = next(self._numbers)
        request = self._requests[turn_id] = self._request(turn_id, shown, attempts)
        self._turns[number] = turn_id
        request.on_accepted(number, time.monotonic())
        for look in self.consumer.on_task_message:  # autoscaling looks whether the pool is full now
            look(request)

    def _request(self, turn_id: str, shown: str, attempts: int) -> ShownRequest:
        headers = {
            "id": turn_id,
            "task": TASK,
            "root_id": turn_id,
            "retries": attempts,
        }
        body: tuple[list[object], dict[str, object], dict[str, object]] = ([], {}, {})
        message = SimpleNamespace(headers=headers, body=body, delivery_info={}, properties={})
        return ShownRequest(
            message,
            describe=lambda _: shown,
            app=self._app,
            hostname=self.consumer.hostname,
            eventer=self.consumer.event_dispatcher,
            body=body,
            headers=headers,
            decoded=True,
        )

    def _succeed(self, turn_id: str, shown: str) -> None:
        request = self._requests.get(turn_id)
        if request is not None:
            runtime = time.time() - request.time_start if request.time_start else 0.0
            self._end(turn_id, "task-succeeded", result=shown, runtime=runtime)

    def _end(self, turn_id: str, event: str | None, **fields: object) -> None:
        request = self._requests.pop(turn_id, None)
        if request is None:
            return
        self._turns.pop(request.worker_pid, None)
        terminated = request._already_revoked  # then Celery has announced it, once
        if not terminated:
            state.task_ready(request, successful=event == "task-succeeded")
        if event is not None and not terminated:
            self._send(event, turn_id, **fields)

    def _send(self, event: str, task_id: str, **fields: object) -> None:
        dispatcher = self.consumer and self.consumer.event_dispatcher
        if dispatcher and dispatcher.enabled:
            dispatcher.send(event, uuid=task_id, **fields)
