"""Has Celery execute the tasks that the ledger keeps: its own request and tracer, with all they do.

When a turn is taken, its message is long gone from the broker (see `workers.reception`). What mattered of it
stands in the ledger: headers, properties, and what is to follow. From that, Celery's request is made once more,
and its tracer calls the body in `workers.tasks`. A task whose end Celery could not store or publish stays in the
ledger, and is executed again: its body then returns the result at once, and what follows is sent under the same
task ids.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import orjson
import structlog
from celery import Celery, states
from celery.app import trace
from celery.concurrency.base import apply_target
from celery.worker import state
from celery.worker.request import Request

from ops.ledger import Claim
from ops.redaction import Redactor
from workers import continuations
from workers.app import SESSION_TASK, TASK
from workers.description import described, named
from workers.errands import Errands
from workers.errors import MessageTooLong, Undelivered
from workers.results import Results
from workers.tasks import Cancelled, Work, doing, unawaited

_MOST_KEPT = 10 * 1024 * 1024  # bytes of a message, as of a prompt

# What the ledger has in the request, what a producer could show a secret in, and what Celery adds by itself.
_IN_THE_REQUEST = ("args", "kwargs", "eta", "expires", "timelimit")
_SHOWN = ("argsrepr", "kwargsrepr")
_ADDED = ("properties", "reply_to", "correlation_id", "hostname", "delivery_info")
_DROPPED = frozenset((*_IN_THE_REQUEST, *_SHOWN, *_ADDED))
_PROPERTIES = ("correlation_id", "reply_to", "priority")

log = structlog.get_logger(__name__)


def stored(request: Request, document: object) -> str:
    """What the ledger keeps of a task's message, as JSON. Raises MessageTooLong.

    Messages of Celery's first protocol have no headers.
    """
    properties = request.message.properties or {}
    given = document if isinstance(document, Mapping) else {}
    _, _, embed = request._payload
    kept = orjson.dumps(
        {
            "headers": {name: each for name, each in request.request_dict.items() if name not in _DROPPED},
            "properties": {name: properties.get(name) for name in _PROPERTIES},
            "embed": _identified(embed or {}),
            "failure": given.get("failure"),
        },
        option=orjson.OPT_NON_STR_KEYS,
    )
    if len(kept) > _MOST_KEPT:
        raise MessageTooLong(
            f"what follows on the task, with its headers, is {len(kept):,} bytes, and {_MOST_KEPT:,} can be kept: "
            "have it followed by one task that sends the rest"
        )
    return kept.decode()


def _identified(embed: Mapping[str, Any]) -> Mapping[str, Any]:
    """What is to follow, each task with an id: should it be sent again, whoever gets it can tell."""
    for each in (*(embed.get("callbacks") or ()), *(embed.get("errbacks") or ())):
        if isinstance(each, dict) and not str(each.get("task")).startswith("celery."):  # those are canvases
            each.setdefault("options", {}).setdefault("task_id", str(uuid4()))
    return embed


def stamps_of(message: str) -> Mapping[str, object]:
    """The stamps of a task whose message is `stored`."""
    stamps: object = orjson.loads(message)["headers"].get("stamps")
    return stamps if isinstance(stamps, dict) else {}


@dataclass(frozen=True, slots=True)
class Task:
    """One that waits for a turn, or for a session of turns."""

    task_id: str
    asked: str  # the id of the turn, or of the session
    name: str = TASK
    message: str | None = None  # see `stored`; None: it has not come yet
    shown: str = "()"  # what monitors see of its arguments
    waits: bool = True  # False: nobody has asked, and the ledger has no such task
    own: Mapping[str, object] = field(default_factory=dict)  # headers that go before those of its message

    @property
    def headers(self) -> dict[str, Any]:
        """Of its message."""
        return {**self._message["headers"], **self.own}

    @property
    def properties(self) -> dict[str, Any]:
        """Of its message."""
        return dict(self._message["properties"])

    @property
    def embed(self) -> dict[str, Any]:
        """What is to follow on it."""
        return dict(self._message["embed"])

    @property
    def continues(self) -> bool:
        """Whether anything is to follow on it."""
        return any(self.embed.values())

    @property
    def failures_raise(self) -> bool:
        """See `tasks.Work`."""
        return bool(self._message.get("failure") != "return")

    @property
    def _message(self) -> dict[str, Any]:
        if self.message is not None:
            read: dict[str, Any] = orjson.loads(self.message)
            return read
        headers = {"id": self.task_id, "task": self.name, "root_id": self.asked}
        return {"headers": headers, "properties": {"correlation_id": self.task_id}, "embed": {}}


def unasked(claim: Claim) -> Task:
    """In the place of a task, for a turn that none waits for, as in a session: monitors see it all the same."""
    headers = {
        "id": claim.turn_id,
        "task": TASK,
        "root_id": claim.session_run or claim.turn_id,
        "parent_id": claim.session_run,
        "ignore_result": True,
    }
    message = {"headers": headers, "properties": {"correlation_id": claim.turn_id}, "embed": {}}
    return Task(claim.turn_id, claim.turn_id, message=orjson.dumps(message).decode(), waits=False)


class _TaskRequest(Request):  # type: ignore[misc]  # Celery has no types
    """Celery's view of a task that is executed here."""

    def __init__(self, task: Task, executor: Executor, hostname: str | None) -> None:
        body: tuple[list[object], dict[str, object], dict[str, Any]] = ([{"turn_id": task.asked}], {}, task.embed)
        message = SimpleNamespace(headers=task.headers, body=body, delivery_info={}, properties=task.properties)
        super().__init__(
            message, app=executor.app, hostname=hostname, headers=message.headers, body=body, decoded=True
        )
        self.name = executor.named(task.headers.get("shadow"), self.type)
        self._argsrepr, self._kwargsrepr = task.shown, "{}"
        self._executor = executor

    def revoked(self) -> bool:
        """Never: whoever revokes a task has its turn cancelled in the ledger."""
        return False

    def terminate(self, pool: Any, signal: Any = None) -> None:
        """Have its turn ended. It is revoked when that has ended, and not if it was done before."""
        if self.worker_pid is not None:
            pool.terminate_job(self.worker_pid, signal)

    def cancel(self, pool: Any, signal: Any = None, emit_retry: bool = True) -> None:
        """Nothing: a worker that stops leaves its turns to the next one, however it was told to."""

    def send_event(self, type: str, **fields: Any) -> None:
        """Post it to Celery's loop, without a traceback: it is the same for all.

        Monitors hear of retries when a task is received, which here is once.
        """
        fields.pop("traceback", None)
        if type == "task-started" and (retries := self.request_dict.get("retries")):
            fields["retries"] = retries
        self._executor.send(type, uuid=self.id, **fields)

    def on_failure(self, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False) -> None:
        """The body has raised: it was cancelled, for one."""
        raised = getattr(exc_info.exception, "exc", exc_info.exception)  # it may be wrapped to keep its traceback
        if not isinstance(raised, Cancelled):
            super().on_failure(exc_info, send_failed_event, return_ok)
        elif not self._already_revoked:
            reason = "expired" if raised.expired else "cancelled"
            self._announce_revoked(reason, not raised.expired, None, raised.expired)

    def info(self, safe: bool = False) -> dict[str, Any]:
        """What `inspect` tells."""
        told: dict[str, Any] = super().info(safe=True)
        return told


class Executor:
    """Executes tasks in the threads that call it."""

    def __init__(self, app: Celery, errands: Errands, redactor: Redactor) -> None:
        """`redactor` knows the secrets of this process."""
        self.app = app
        self.consumer: Any = None  # Celery's, once it is connected; on its thread
        self._errands = errands
        self._redactor = redactor
        self._numbers = count(1)
        self._turns: dict[int, str] = {}  # by number: to Celery, the process that a turn runs in
        continuations.install(app)

    def prepare(self, hostname: str) -> None:
        """Have the tasks traced; once they are defined and instrumented, and before any is executed."""
        # Each turn has a thread, and is not to have a connection, too. Only here: where results are waited for,
        # threads with one backend overwrite each other's subscriptions, and wait in vain (Celery 5.6).
        self.app.conf.result_backend_thread_safe = True
        results = Results(self.app.backend)
        for name in (TASK, SESSION_TASK):
            task = self.app.tasks[name]
            task.backend = results
            task.__trace__ = trace.build_tracer(name, task, self.app.loader, hostname, app=self.app)

    def named(self, shadow: object, task: str) -> str:
        """See `shown_request.Shown`."""
        return named(shadow, task, self._redactor)

    def described(self, asked: object) -> str:
        """See `shown_request.Shown`."""
        return described(asked, self._redactor)

    def execute(self, task: Task, work: Work, *, running: bool = False) -> bool:
        """Have a task executed, and return when it has ended; False: it has to be executed again.

        `running`: it is a turn that runs here, and a monitor may end it.
        """
        number = next(self._numbers)
        try:
            if running:
                self._turns[number] = task.asked
            self._execute(task, work, number, running=running)
        except Undelivered as error:
            log.warning("a task is told later", task_id=task.task_id, turn_id=task.asked, error=str(error))
            return False
        except Exception as error:
            # Again and again it would fail in the same way; its turn's result is in the ledger.
            log.exception("a task could not be executed", task_id=task.task_id, turn_id=task.asked)
            with unawaited():
                self.app.tasks[task.name].backend.mark_as_failure(task.task_id, error)
        finally:
            self._turns.pop(number, None)
        return True

    def _execute(self, task: Task, work: Work, number: int, *, running: bool) -> None:
        hostname = self.consumer.hostname if self.consumer is not None else None
        request = _TaskRequest(task, self, hostname)
        if running:
            self._errands.post(lambda: self._look(request))
        try:
            with doing(work):
                request.execute_using_pool(
                    _Here(partial(trace.fast_trace_task, _loc=(self.app.tasks, (), hostname)), number)
                )
        finally:
            state.task_ready(request)

    def started(self, task: Task, where: Mapping[str, object]) -> None:
        """Show that a task's work has begun, and where; by the thread of another task."""
        if not task.headers.get("ignore_result"):
            with unawaited():
                self.app.tasks[task.name].backend.store_result(task.task_id, dict(where), states.STARTED)

    def _look(self, request: Request) -> None:
        """Autoscaling looks whether the pool is full now."""
        if self.consumer is not None:
            for look in self.consumer.on_task_message:
                look(request)

    def send(self, event: str, **fields: Any) -> None:
        """Send an event, without secrets that this process knows."""
        redact = self._redactor.text
        safe = {name: redact(value) if isinstance(value, str) else value for name, value in fields.items()}
        self._errands.post(lambda: self._send(event, safe))

    def _send(self, event: str, fields: Mapping[str, Any]) -> None:
        dispatcher = self.consumer and self.consumer.event_dispatcher
        if dispatcher and dispatcher.enabled:
            dispatcher.send(event, **fields)

    def turn(self, number: int) -> str | None:
        """The turn that Celery calls by a number."""
        return self._turns.get(number)

    @property
    def numbers(self) -> list[int]:
        """What Celery calls the turns that run here."""
        return list(self._turns)


@dataclass(frozen=True, slots=True)
class _Here:
    """In the place of a pool: executes in the thread that asks."""

    trace: Callable[..., Any]
    number: int

    def apply_async(
        self,
        target: Callable[..., Any],
        args: tuple[Any, ...],
        accept_callback: Callable[..., None],
        callback: Callable[..., None],
        **_: Any,
    ) -> None:
        """Celery's own way of calling a tracer."""
        apply_target(self.trace, args, {}, callback, accept_callback, pid=self.number, propagate=(Undelivered,))
