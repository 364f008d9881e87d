"""The tasks of the turns that are worked on here: each is executed in a thread while its turn is here."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from concurrent.futures import CancelledError, Future
from dataclasses import replace
from typing import Protocol

import structlog

from adapters.result import TurnResult
from ops.errors import LedgerUnavailable
from ops.ledger import Attempt, Claim
from ops.tracing import Tracing, parent_of_task
from workers.answers import Answers
from workers.conclusion import Parked
from workers.errors import Undelivered
from workers.execution import Executor, Task, unasked
from workers.run import RunOutcome, TurnRun

_ORDERLY_S = 1.0  # a turn waits no longer for a result backend that hangs
_TELLING = 64  # tasks of ended turns in threads of their own; a result backend that hangs is to hold no more

log = structlog.get_logger(__name__)


class Driver(Protocol):
    """What drives turns, elsewhere. Called from the threads of tasks."""

    def drive(self, run: TurnRun) -> Future[RunOutcome]:
        """Work on a turn."""
        ...

    def placed(self, run: TurnRun) -> Attempt | None:
        """Wait until it is known where a turn runs; None: it does not."""
        ...

    def executed(self, run: TurnRun) -> None:
        """The task of a turn is over, and so is the work on that, whatever became of them."""
        ...


class TurnTasks:
    """Safe for threads."""

    def __init__(self, executor: Executor, answers: Answers, driver: Driver, tracing: Tracing | None) -> None:
        self._executor = executor
        self._answers = answers
        self._driver = driver
        self._tracing = tracing
        self._threads: set[threading.Thread] = set()
        self._telling = threading.BoundedSemaphore(_TELLING)

    def start(self, run: TurnRun) -> None:
        """Have a turn's task executed, whose body drives the turn; returns at once."""
        name = f"turn {run.claim.turn_id}"
        threading.Thread(target=self._execute, args=(run,), name=name, daemon=True).start()

    def join(self, within_s: float) -> None:
        """Wait for the tasks to end, but no longer."""
        ends = time.monotonic() + within_s
        for thread in list(self._threads):
            thread.join(max(0.0, ends - time.monotonic()))

    def _execute(self, run: TurnRun) -> None:
        self._follow_on(threading.current_thread())
        claim, work = run.claim, _TurnWork(self._driver, self._answers, self._telling, run)
        try:
            task = self._task(claim)
            work.failures_raise = task.failures_raise
            self._answers.execute(task, work, lambda: isinstance(work.became, TurnResult))
            if work.driven is None:  # its task could not be executed
                work.begin()
                work.outcome()
            if isinstance(work.became, TurnResult):
                self._answers.give(claim.turn_id)
                if claim.session_run is not None:
                    self._answers.give(claim.session_run)
        except (LedgerUnavailable, Undelivered) as error:
            log.warning("a turn's tasks are told later", turn_id=claim.turn_id, error=str(error))
        finally:
            if work.telling:
                self._telling.release()
            self._threads.discard(threading.current_thread())
            self._driver.executed(run)

    def _follow_on(self, thread: threading.Thread) -> None:
        """Let the last execution of the same task tell that the turn was parked: signals are to come in order."""
        before = [each for each in list(self._threads) if each.name == thread.name]
        self._threads.add(thread)
        for each in before:
            each.join(_ORDERLY_S)

    def _task(self, claim: Claim) -> Task:
        """The task that the turn is executed for; others that wait for it are told its result."""
        shown, parent = self._executor.described(claim.request), parent_of_task(self._tracing, claim)
        own: dict[str, object] = {"retries": sum(each is not claim.open for each in claim.attempts)}
        if parent is not None:
            own["traceparent"] = parent
        if not claim.tasks:
            return replace(unasked(claim), shown=shown, own=own)
        task_id = claim.turn_id if claim.turn_id in claim.tasks else min(claim.tasks)
        return Task(task_id, claim.turn_id, message=claim.tasks[task_id], shown=shown, own=own)


class _TurnWork:
    """The work of a task whose turn runs here. See `tasks.Work`."""

    def __init__(
        self, driver: Driver, answers: Answers, telling: threading.BoundedSemaphore, run: TurnRun
    ) -> None:
        self.became: RunOutcome | None = None
        self.failures_raise = True
        self.telling = False  # it has taken one of the places
        self._driver = driver
        self._answers = answers
        self._places = telling
        self._run = run
        self.driven: Future[RunOutcome] | None = None

    def begin(self) -> Mapping[str, object] | None:
        """See `tasks.Work`."""
        self.driven = self._driver.drive(self._run)
        try:
            attempt = self._driver.placed(self._run)
        except CancelledError:
            return None
        if attempt is None:
            return None
        where = {"host": attempt.host, "attempt": attempt.attempt}
        if (session := self._run.claim.session_run) is not None:
            self._answers.started(session, {"turn": attempt.turn_id, **where})
        return where

    def outcome(self) -> TurnResult | Parked | None:
        """See `tasks.Work`."""
        assert self.driven is not None  # noqa: S101  # it was begun
        try:
            self.became = self.driven.result()
        except CancelledError:  # the worker has left
            return None
        except Exception:
            log.exception("a turn could not be worked on", turn_id=self._run.claim.turn_id)
            return None
        self.telling = self._places.acquire(blocking=False)
        if not self.telling:
            raise Undelivered("too many tasks wait for the result backend or the broker")
        return self.became if isinstance(self.became, TurnResult | Parked) else None
