"""Delivery of a task's end, now or later: its state is stored, and what follows the task is sent.

Celery treats any error in that as a failure of the task: it stores the failure if it can, and forgets the task.
Here, the error ends the execution (`Undelivered`), and the ledger keeps the task with a record of what was sent.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from celery import Celery
from celery.exceptions import ChordError, Ignore
from kombu.exceptions import EncodeError, SerializerNotInstalled

from adapters.errors import TurnExpired
from adapters.protocol.result import TurnResult
from adapters.protocol.session_result import SessionResult
from workers.brokers.settings import publish_options
from workers.errors import TurnFailed, Undelivered
from workers.turn.settlement import Parked

if TYPE_CHECKING:
    from collections.abc import Iterator

Result = TurnResult | SessionResult
Outcome = Result | Parked | None  # None: another worker continues it

# The fault is in what was to be stored or sent, so a later try would fail, too.
_OF_THE_TASK = (TurnFailed, ChordError, EncodeError, SerializerNotInstalled, NotImplementedError, TypeError)

# The arguments of what follows may quote an agent or contain a producer's secret.
SHOWN = {"argsrepr": "(not shown)", "kwargsrepr": "{}"}


class Cancelled(Ignore):  # type: ignore[misc]  # Celery has no types
    """The turn was cancelled or could not start in time: its task is revoked."""

    @property
    def expired(self) -> bool:
        """Return whether it could not start in time."""
        return bool(self.args == (TurnExpired.kind,))


@dataclass(slots=True)
class Execution:
    """One execution of a task, in one thread."""

    work: Callable[[], Outcome]  # the task's work: drive a turn, or only return its result
    raises: bool = True  # whether a failed turn fails its task; if not, its result is returned
    follows: frozenset[str] = frozenset()  # the ids of the tasks that follow
    sent: set[str] = field(default_factory=set)  # following tasks already sent, including by earlier executions
    done: bool = False


_current: ContextVar[Execution | None] = ContextVar("execution", default=None)


def current() -> Execution | None:
    """Return this thread's execution; None: it executes no turn's task."""
    return _current.get()


@contextmanager
def executing(execution: Execution) -> Iterator[None]:
    """Make `execution` the current one while this thread executes its task and delivers the end."""
    token = _current.set(execution)
    try:
        yield
    finally:
        _current.reset(token)


def check(error: BaseException) -> None:
    """Raise Undelivered if `error` prevents delivery of a task's end, rather than being that end."""
    if current() is not None and not isinstance(error, _OF_THE_TASK):
        raise Undelivered(summary(error)) from error


def summary(error: BaseException) -> str:
    """Return what a log may show of an error's cause: databases append the values to be stored."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def install(app: Celery) -> None:
    """Send what follows a turn, each task once. On RabbitMQ, require a queue for all that workers send.

    Sends to an exchange are exempt: it may have no listeners. A queue exists, or will once its owner declares it.
    """
    send = app.send_task
    options = publish_options(app.conf.broker_url)

    @functools.wraps(send)
    def send_task(*args: Any, **kwargs: Any) -> Any:
        asked: Mapping[str, Any] = kwargs if kwargs.get("exchange") else {**options, **kwargs}
        execution, task_id = current(), kwargs.get("task_id")
        if execution is None or task_id not in execution.follows:
            return send(*args, **asked)
        # In another chord, the same task counts as a different one: that chord waits for its own.
        sending = f"{task_id} {kwargs.get('chord') and kwargs.get('group_id')}"
        if sending in execution.sent:
            return _sent_before(app, kwargs)
        try:
            result = send(*args, **{**SHOWN, **asked})
        except Exception as error:
            check(error)
            raise
        execution.sent.add(sending)
        return result

    app.send_task = send_task


def _sent_before(app: Celery, options: Mapping[str, Any]) -> Any:
    """Return what Celery returns for a task it sends, and record it as a child of the executing task."""
    result = (options.get("result_cls") or app.AsyncResult)(options["task_id"])
    if app.current_worker_task is not None and options.get("add_to_parent", True):
        app.current_worker_task.add_trail(result)
    return result
