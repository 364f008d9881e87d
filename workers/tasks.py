"""The Celery tasks that wrap a turn: what a worker runs for `runturn.run_turn` and `runturn.run_session`.

A message only brings a turn into the ledger (see `workers.reception`). When the turn has been taken from there,
Celery itself executes its task (see `workers.execution`): it sends the signals and the events, keeps the state,
and publishes what is to follow. The bodies here are what it calls, in a thread of the turn's own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

import structlog
from celery import Celery, states
from celery.app.task import Task
from celery.exceptions import Ignore, Retry

from adapters.errors import TurnExpired
from adapters.result import Status, TurnResult
from adapters.session_result import SessionResult, SessionStatus
from workers.app import SESSION_TASK, TASK
from workers.conclusion import Parked
from workers.errors import TurnFailed, TurnParked, Undelivered

if TYPE_CHECKING:
    from collections.abc import Iterator

Result = TurnResult | SessionResult

log = structlog.get_logger(__name__)


class Work(Protocol):
    """What a task does: it drives a turn, or only has its result. Called from the task's thread."""

    @property
    def failures_raise(self) -> bool:
        """Whether a failed turn is a failed task; else its result is an answer like any other."""
        ...

    def begin(self) -> Mapping[str, object] | None:
        """Begin; returns what tells where it runs, once that is known. None: it has ended."""
        ...

    def outcome(self) -> Result | Parked | None:
        """Wait for what becomes of it; None: another worker goes on with it."""
        ...


class Cancelled(Ignore):  # type: ignore[misc]  # Celery has no types
    """The turn was cancelled, or could not begin in time: its task is revoked."""

    @property
    def expired(self) -> bool:
        """Whether it could not begin in time."""
        return bool(self.args == (TurnExpired.kind,))


class TurnTask(Task):  # type: ignore[misc]  # as above
    """A task of a turn, as Celery's tracer calls it."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the body. Celery's own has what follows on it in a variable, and monitors of errors show those."""
        return self.run(*args, **kwargs)


def define(app: Celery, strategy: Callable[..., Callable[..., None]]) -> None:
    """Define the tasks on the application; only workers need them. `strategy` receives their messages."""
    options = {
        "base": TurnTask,
        "bind": True,
        "acks_late": True,
        "typing": False,
        "shared": False,
        "Strategy": strategy,
    }

    @app.task(name=TASK, **options)  # type: ignore[untyped-decorator]
    def run_turn(task: Any, request: object) -> Result:
        """Run one turn; `request` is a TurnRequest as a JSON object. Returns its TurnResult.

        Raises TurnFailed, Retry while the turn is parked, Cancelled, and Ignore if another worker goes on with it.
        """
        return _told(task, _current())

    @app.task(name=SESSION_TASK, **options)  # type: ignore[untyped-decorator]
    def run_session(task: Any, request: object) -> Result:
        """Run turns until a task is done; `request` is a SessionRequest as a JSON object. See `run_turn`."""
        return _told(task, _current())


def _told(task: Any, work: Work) -> Result:
    """Drive the work, and tell Celery of it."""
    where = work.begin()
    if where is not None and not task.request.ignore_result:
        with unawaited():
            task.update_state(state=states.STARTED, meta=dict(where))
    outcome = work.outcome()
    _thread.telling = True
    match outcome:
        case None:
            raise Ignore
        case Parked(reason, due_at):
            kind = reason.partition(":")[0]  # the rest may be an agent's words
            when = datetime.fromtimestamp(due_at, UTC)
            raise Retry(kind, TurnParked(kind, when.isoformat(timespec="seconds")), when)
        case TurnResult(status=Status.CANCELLED):
            raise Cancelled(outcome.error and outcome.error.kind)
        case SessionResult(status=SessionStatus.CANCELLED):
            raise Cancelled(outcome.reason)
        case TurnResult(status=Status.FAILED) | SessionResult(status=SessionStatus.FAILED) if work.failures_raise:
            raise TurnFailed.of(outcome)
        case _:
            return outcome


_thread = threading.local()


@contextmanager
def doing(work: Work) -> Iterator[None]:
    """Have the task that is executed in this thread do this work."""
    _thread.work = work
    try:
        yield
    finally:
        _thread.__dict__.clear()


def _current() -> Work:
    work: Work | None = getattr(_thread, "work", None)
    if work is None:
        raise RuntimeError("turns are executed by `runturn worker` only: send the task to its queue")
    return work


def telling() -> bool:
    """Whether this thread is executing a task whose work is over: what becomes of it has to be told, if late."""
    return bool(getattr(_thread, "telling", False))


@contextmanager
def rescuing(rescue: Callable[[], object]) -> Iterator[None]:
    """Have `rescue` called where what follows could not be sent, before Celery takes that for its end."""
    _thread.rescue = rescue
    try:
        yield
    finally:
        _thread.__dict__.pop("rescue", None)


def rescue() -> None:
    """What follows could not be sent: do what `rescuing` says."""
    getattr(_thread, "rescue", lambda: None)()


@contextmanager
def unawaited() -> Iterator[None]:
    """Store a state that nobody waits for, if the result backend can."""
    before, _thread.telling = telling(), True
    try:
        yield
    except (Undelivered, Exception) as error:  # backends raise what they like; the turn goes on
        log.warning("a task's state could not be stored", error=str(error))
    finally:
        _thread.telling = before
