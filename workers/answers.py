"""Results for everybody who asked: a turn may have been queued several times, under several task ids.

The ledger notes which tasks have yet to be told. Whoever settles a turn tells them; what a killed worker, or a
result backend that was away, has left undone, any other worker finds there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace

import structlog

from ops.errors import LedgerUnavailable
from ops.ledger import Ledger
from workers.app import SESSION_TASK, TASK
from workers.execution import Executor, Task
from workers.tasks import Result, Work
from workers.threads import DaemonPool

_THREADS = 4  # of their own: a slow result backend must hold up nothing else
_AGE_S = 10.0  # of a settled turn whose worker ought to have told all its tasks
_LEASE_S = 20.0  # of tasks that are told late: what follows on a turn is to come once, not from each worker

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Ended:
    """The work of a task whose turn, or session of turns, has its result. See `tasks.Work`."""

    result: Result
    failures_raise: bool

    def begin(self) -> Mapping[str, object] | None:
        """See `tasks.Work`."""
        return None

    def outcome(self) -> Result:
        """See `tasks.Work`."""
        return self.result


class Answers:
    """Has the tasks of ended turns executed. Safe for threads."""

    def __init__(self, executor: Executor, ledger: Ledger) -> None:
        self._executor = executor
        self._ledger = ledger
        self._threads = DaemonPool(_THREADS, "answers")
        self._mutex = threading.Lock()
        self._pending: dict[str, Future[None]] = {}
        self._telling: set[tuple[str, str]] = set()  # turn or session, and task

    def give(self, asked: str) -> None:
        """Have all tasks of a turn, or of a session of turns, told if it has ended; returns at once."""
        with self._mutex:
            before = self._pending.get(asked)
            if before is not None and not (before.running() or before.done()):
                return  # it has yet to look who waits
            future = self._pending[asked] = self._threads.submit(lambda: self._tell(asked))
        future.add_done_callback(lambda done: self._done(asked, done))

    def execute(self, task: Task, work: Work, ended: Callable[[], bool]) -> None:
        """Have a task executed, and note that if its work has `ended` by then. Raises LedgerUnavailable."""
        with self._in_hand(task.asked, task.task_id):  # nobody else has it before its turn has its result
            if self._executor.execute(task, work, running=True) and ended() and task.waits:
                self._told(task)

    def give_late(self, now: float) -> None:
        """Have the tasks told that somebody ought to have told by now. Raises LedgerUnavailable."""
        late = self._ledger.unanswered(now - _AGE_S, now)
        if late:
            for asked in self._ledger.lease_unanswered(late, now, now + _LEASE_S):
                self.give(asked)

    def started(self, session_run: str, where: Mapping[str, object]) -> None:
        """Have the tasks that wait for a session of turns show where its turn runs."""
        try:
            for task_id, message in self._ledger.messages(session_run).items():
                self._executor.started(Task(task_id, session_run, SESSION_TASK, message), where)
        except LedgerUnavailable as error:
            log.warning("a session's tasks do not show its turn", session_id=session_run, error=str(error))

    def close(self, within_s: float) -> None:
        """Wait until all are told that are to be told now, but no longer: the ledger knows of the others."""
        with self._mutex:
            pending = list(self._pending.values())
        wait(pending, within_s)

    def _done(self, asked: str, done: Future[None]) -> None:
        with self._mutex:
            if self._pending.get(asked) is done:
                del self._pending[asked]
        error = None if done.cancelled() else done.exception()
        if isinstance(error, LedgerUnavailable):
            log.warning("a turn's tasks are told later", turn_id=asked, error=str(error))
        elif error is not None:
            log.error("a turn's tasks could not be told", turn_id=asked, exc_info=error)

    def _tell(self, asked: str) -> None:
        """Raises LedgerUnavailable."""
        session = self._ledger.session_run(asked)
        result = session.result if session is not None else self._ledger.result(asked)
        if result is None:
            return
        name = SESSION_TASK if session is not None else TASK
        for task_id in self._ledger.messages(asked):
            with self._in_hand(asked, task_id) as mine:
                rows = self._ledger.messages(asked) if mine else {}  # whoever had it may have told it
                if task_id in rows:
                    task = Task(task_id, asked, name, rows[task_id])
                    if self._executor.execute(task, Ended(result, task.failures_raise)):
                        self._told(task)

    def _told(self, task: Task) -> None:
        """Note that a task was executed, to its end. Raises LedgerUnavailable."""
        message = task.message
        if message is None:
            message = self._ledger.messages(task.asked).get(task.task_id)
            if message is not None and replace(task, message=message).continues:
                return  # it has come meanwhile: somebody executes it for what is to follow
        self._ledger.told(task.asked, task.task_id, message)

    @contextmanager
    def _in_hand(self, asked: str, task_id: str) -> Iterator[bool]:
        """Be the only one in this process who tells a task; yields whether that is so."""
        key = (asked, task_id)
        with self._mutex:
            mine = key not in self._telling
            self._telling.add(key)
        try:
            yield mine
        finally:
            if mine:
                with self._mutex:
                    self._telling.discard(key)
