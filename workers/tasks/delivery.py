"""How a task's end is delivered: its state is stored, and what follows on it is sent. Now, or later.

Celery takes whatever goes wrong there for a failure of the task: it stores that if it can, and forgets the task.
Here it ends the execution (`Undelivered`), and the ledger still has the task, with a note of what was sent.
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
Outcome = Result | Parked | None  # None: another worker goes on with it

# What is wrong with these is in what was to be told or sent, and would be so later, too.
_OF_THE_TASK = (TurnFailed, ChordError, EncodeError, SerializerNotInstalled, NotImplementedError, TypeError)

# What follows is somebody else's: its arguments may be an agent's words, or a producer's secret.
SHOWN = {"argsrepr": "(not shown)", "kwargsrepr": "{}"}


class Cancelled(Ignore):  # type: ignore[misc]  # Celery has no types
    """The turn was cancelled, or could not begin in time: its task is revoked."""

    @property
    def expired(self) -> bool:
        """Whether it could not begin in time."""
        return bool(self.args == (TurnExpired.kind,))


@dataclass(slots=True)
class Execution:
    """One execution of a task, in one thread."""

    work: Callable[[], Outcome]  # what the task does: it drives a turn, or only has its result
    raises: bool = True  # whether a failed turn is a failed task; else its result is an answer like any other
    follows: frozenset[str] = frozenset()  # the ids of the tasks that are to follow on it
    sent: set[str] = field(default_factory=set)  # what follows on it and was sent, also by earlier executions
    done: bool = False


_current: ContextVar[Execution | None] = ContextVar("execution", default=None)


def current() -> Execution | None:
    """Return the execution that this thread is at; None: it executes no turn's task."""
    return _current.get()


@contextmanager
def executing(execution: Execution) -> Iterator[None]:
    """Have the task that is executed in this thread do its work, and deliver its end."""
    token = _current.set(execution)
    try:
        yield
    finally:
        _current.reset(token)


def check(error: BaseException) -> None:
    """Raise Undelivered for an error that keeps a task's end from being delivered, rather than being that end."""
    if current() is not None and not isinstance(error, _OF_THE_TASK):
        raise Undelivered(summary(error)) from error


def summary(error: BaseException) -> str:
    """What a log may say of an error's cause: databases go on with the values that were to be stored."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def install(app: Celery) -> None:
    """Have what follows on a turn sent, and each once. On RabbitMQ, all that workers send needs its queue there.

    An exchange is for whoever listens. A queue has to be there, or will be once its owner declares it.
    """
    send = app.send_task
    options = publish_options(app.conf.broker_url)

    @functools.wraps(send)
    def send_task(*args: Any, **kwargs: Any) -> Any:
        asked: Mapping[str, Any] = kwargs if kwargs.get("exchange") else {**options, **kwargs}
        execution, task_id = current(), kwargs.get("task_id")
        if execution is None or task_id not in execution.follows:
            return send(*args, **asked)
        # The same task is another one in another chord: that waits for its own.
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
    """Return what Celery returns of a task that it sends, and note it as a child of the one that is executed."""
    result = (options.get("result_cls") or app.AsyncResult)(options["task_id"])
    if app.current_worker_task is not None and options.get("add_to_parent", True):
        app.current_worker_task.add_trail(result)
    return result
