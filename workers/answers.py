"""Results for everybody who asked: a turn may have been queued several times, under several task ids.

The ledger notes which tasks have yet to be told. Whoever settles a turn tells them; what a killed worker, or a
result backend that was away, has left undone, any other worker finds there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Container
from concurrent.futures import Future, wait

import structlog
from celery import Celery, states

from adapters.result import TurnResult
from adapters.session_result import SessionResult
from ops.errors import LedgerUnavailable
from ops.ledger import Ledger
from workers.errors import AnswersUnavailable
from workers.threads import DaemonPool

_THREADS = 4  # of their own: a slow result backend must hold up nothing else
_AGE_S = 5.0  # of a settled turn whose worker ought to have told all its tasks

Result = TurnResult | SessionResult
Told = Callable[[str, Result], None]

log = structlog.get_logger(__name__)


class Answers:
    """Puts results into Celery's result backend. Safe for threads."""

    def __init__(self, app: Celery, ledger: Ledger, told: Told, revoked: Container[str] = frozenset()) -> None:
        """`told` is called for each task, on any thread. The state of `revoked` ones stays as Celery has it."""
        self._app = app
        self._ledger = ledger
        self._told = told
        self._revoked = revoked
        self._threads = DaemonPool(_THREADS, "answers")
        self._mutex = threading.Lock()
        self._pending: dict[str, Future[None]] = {}

    def give(self, result: Result) -> None:
        """Have all tasks of a settled turn, or session of turns, told; returns at once."""
        self._submit(_id(result), lambda: self._tell(result))

    def give_stored(self, run_id: str) -> None:
        """Have all tasks of a session of turns told, if it has ended; returns at once."""
        self._submit(run_id, lambda: self._tell_stored(run_id))

    def give_late(self, now: float) -> None:
        """Have the tasks told that somebody ought to have told by now. Raises LedgerUnavailable."""
        for turn_id in self._ledger.unanswered(now - _AGE_S):
            self._submit(turn_id, lambda turn_id=turn_id: self._tell_stored(turn_id))  # type: ignore[misc]

    def close(self, within_s: float) -> None:
        """Wait until all are told that are to be told now, but no longer: the ledger knows of the others."""
        with self._mutex:
            pending = list(self._pending.values())
        wait(pending, within_s)

    def _submit(self, turn_id: str, work: Callable[[], None]) -> None:
        with self._mutex:
            before = self._pending.get(turn_id)
            if before is not None and not (before.running() or before.done()):
                return  # it has yet to look who waits
            future = self._pending[turn_id] = self._threads.submit(work)
        future.add_done_callback(lambda done: self._done(turn_id, done))

    def _done(self, turn_id: str, done: Future[None]) -> None:
        with self._mutex:
            if self._pending.get(turn_id) is done:
                del self._pending[turn_id]
        error = None if done.cancelled() else done.exception()
        if isinstance(error, LedgerUnavailable | AnswersUnavailable):
            log.warning("a turn's tasks are told later", turn_id=turn_id, error=str(error))
        elif error is not None:
            log.error("a turn's tasks could not be told", turn_id=turn_id, exc_info=error)

    def _tell_stored(self, turn_id: str) -> None:
        session = self._ledger.session_run(turn_id)
        result = session.result if session is not None else self._ledger.result(turn_id)
        if result is not None:
            self._tell(result)

    def _tell(self, result: Result) -> None:
        """Raises LedgerUnavailable, and AnswersUnavailable while the result backend is away."""
        asked = _id(result)
        tasks = self._ledger.waiters(asked)
        for task_id in tasks:
            if task_id not in self._revoked:
                self._store(task_id, result)
                self._told(task_id, result)
        if tasks:
            self._ledger.told(asked, tasks)

    def _store(self, task_id: str, result: Result) -> None:
        backend = self._app.backend
        try:
            backend.store_result(task_id, result, states.SUCCESS)
        except Exception as error:  # backends raise what their servers' clients raise
            if backend.exception_safe_to_retry(error):
                raise AnswersUnavailable(f"result backend: {error}") from error
            log.exception("a result could not be stored", turn_id=_id(result), task_id=task_id)


def _id(result: Result) -> str:
    return result.run_id if isinstance(result, SessionResult) else result.turn_id
