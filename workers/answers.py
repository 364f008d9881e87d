"""Results for everybody who asked: a turn may have been queued several times, under several task ids."""

from __future__ import annotations

import structlog
from celery import Celery, states

from adapters.result import TurnResult
from ops.ledger import Ledger

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

    def give(self, result: TurnResult, but: str | None = None) -> int:
        """Answer all tasks of a turn, except `but`, which Celery answers itself; returns how many there are.

        May be repeated. Raises LedgerUnavailable.
        """
        tasks = {result.turn_id, *self._ledger.waiters(result.turn_id)} - {but}
        for task_id in tasks:
            try:
                self._app.backend.store_result(task_id, result, states.SUCCESS)
            except Exception as error:  # backends raise what their servers' clients raise
                log.warning(
                    "a result could not be stored", turn_id=result.turn_id, task_id=task_id, error=str(error)
                )
        return len(tasks)
