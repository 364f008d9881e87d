"""The Celery tasks that wrap a turn: what a worker runs for `runturn.run_turn` and `runturn.run_session`.

A message only brings a turn into the ledger (see `workers.worker.strategy`). Once the turn is claimed, Celery
itself executes its task (see `execution`): it sends the signals and events, keeps the state, and publishes what
follows. It calls the bodies here, each in the turn's thread. They wait for `RunTurn.drive` (see
`workers.turn.run`), which runs the turn on the worker's loop.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from celery import Celery
from celery.app.task import Task
from celery.exceptions import Ignore, Retry

from adapters.protocol.result import Status, TurnResult
from adapters.protocol.session_result import SessionResult, SessionStatus
from workers.app import SESSION_TASK, TASK
from workers.errors import TurnFailed, TurnParked
from workers.tasks import delivery
from workers.tasks.delivery import Cancelled, Result
from workers.turn.settlement import Parked


class TurnTask(Task):  # type: ignore[misc]  # Celery has no types
    """A turn's task, as Celery's tracer calls it."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the body. Celery's own method has what follows in a local variable, which error monitors show."""
        return self.run(*args, **kwargs)


def define(app: Celery, strategy: Callable[..., Callable[..., None]]) -> None:
    """Define the tasks on the application; only workers need them. `strategy` receives their messages."""
    options = {"base": TurnTask, "acks_late": True, "typing": False, "shared": False, "Strategy": strategy}

    @app.task(name=TASK, **options)  # type: ignore[untyped-decorator]
    def run_turn(request: object) -> Result:
        """Run one turn; `request` is a TurnRequest as a JSON object. Return its TurnResult.

        Raises TurnFailed, Retry while the turn is parked, Cancelled, and Ignore if another worker continues it.
        """
        return _run()

    @app.task(name=SESSION_TASK, **options)  # type: ignore[untyped-decorator]
    def run_session(request: object) -> Result:
        """Run turns until a task is done; `request` is a SessionRequest as a JSON object. See `run_turn`."""
        return _run()


def _run() -> Result:
    """Do the work of the task that this thread executes (see `waiting`), and report its end to Celery."""
    execution = delivery.current()
    if execution is None:
        raise RuntimeError("only `runturn worker` executes turns: send the task to its queue")
    match outcome := execution.work():
        case None:
            raise Ignore
        case Parked(reason, due_at):
            kind = reason.partition(":")[0]  # the rest may quote an agent
            when = datetime.fromtimestamp(due_at, UTC)
            raise Retry(kind, TurnParked(kind, when.isoformat(timespec="seconds")), when)
        case TurnResult(status=Status.CANCELLED):
            raise Cancelled(outcome.error and outcome.error.kind)
        case SessionResult(status=SessionStatus.CANCELLED):
            raise Cancelled(outcome.reason)
        case TurnResult(status=Status.FAILED) | SessionResult(status=SessionStatus.FAILED) if execution.raises:
            raise TurnFailed.of(outcome)
        case _:
            return outcome
