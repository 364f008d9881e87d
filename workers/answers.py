"""Results for everybody who asked: a turn may have been queued several times, under several task ids."""

from __future__ import annotations

import structlog
from celery import Celery, states

from adapters.result import TurnResult
from ops.ledger import Ledger
from workers.errors import AnswersUnavailable

log = structlog.get_logger(__name__)


class Answers:
    """Notes who waits for a turn, and puts its result into Celery's result backend for each of them."""

    def __init__(self, app: Celery, ledger: Ledger) -> None:
        self._app = app
        self._ledger = ledger

    def note(self, turn_id: str, task_id: str) -> None:
        """Remember a task that a turn's result answers. Raises LedgerUnavailable."""
        if task_id != turn_id:
            self._ledger.add_waiter(turn_id, task_id)

    def started(self, task_id: str) -> None:
        """Say that somebody is at it. Celery's own notice would fail the task while the result backend is away."""
        try:
            self._app.backend.store_result(task_id, None, states.STARTED)
        except Exception as error:  # backends raise what their servers' clients raise
            log.warning("a start could not be told", task_id=task_id, error=str(error))

    def give(self, result: TurnResult, task_id: str) -> int:
        """Answer `task_id` and all other tasks of a turn; returns how many there are. May be repeated.

        Celery answers a task itself, too, but acknowledges its message even if that fails.
        Raises LedgerUnavailable, and AnswersUnavailable while the result backend is away.
        """
        tasks = {task_id, result.turn_id, *self._ledger.waiters(result.turn_id)}
        for task in tasks:
            self._store(task, result)
        return len(tasks)

    def _store(self, task_id: str, result: TurnResult) -> None:
        backend = self._app.backend
        try:
            backend.store_result(task_id, result, states.SUCCESS)
        except Exception as error:  # backends raise what their servers' clients raise
            if backend.exception_safe_to_retry(error):
                raise AnswersUnavailable(f"result backend: {error}") from error
            log.exception("a result could not be stored", turn_id=result.turn_id, task_id=task_id)
