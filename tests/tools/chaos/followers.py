"""Follow-up tasks of turns: they belong to another application, and arrive in a queue that only we empty."""

from __future__ import annotations

from collections import Counter
from queue import Empty

from celery import Celery
from celery.canvas import Signature
from kombu.simple import SimpleQueue

from adapters.protocol.result import Status, TurnResult
from adapters.protocol.session_result import SessionResult, SessionStatus

_QUEUE = "another.application"
_COMPLETED, _FAILED = "completed", "failed"


class Followers:
    """The follow-up tasks of all tasks that were sent with some."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        self.came: Counter[str] = Counter()  # their task ids

    def declare(self) -> None:
        """Declare the queue, as the other application's workers do."""
        self.gather()

    def on(self, task: Signature) -> Signature:
        """Return the task with a follow-up task on success and one on failure."""
        task.link(self._follower(f"{task.options['task_id']}.{_COMPLETED}"))
        task.link_error(self._follower(f"{task.options['task_id']}.{_FAILED}"))
        return task

    def last(self, task_id: str) -> Signature:
        """Return the body of a chord."""
        return self._follower(f"{task_id}.{_COMPLETED}")

    def wanted(self, task_id: str, result: TurnResult | SessionResult) -> str | None:
        """Return the id of the follow-up task expected after this result; None after a revoked task."""
        if result.status in (Status.CANCELLED, SessionStatus.CANCELLED):
            return None
        failed = result.status in (Status.FAILED, SessionStatus.FAILED)
        return f"{task_id}.{_FAILED if failed else _COMPLETED}"

    def gather(self) -> None:
        """Take the tasks that have arrived."""
        with self._app.connection_for_read() as connection, connection.SimpleQueue(_QUEUE) as queue:
            while self._take(queue):
                pass

    def _take(self, queue: SimpleQueue) -> bool:
        try:
            message = queue.get(block=False)
        except Empty:
            return False
        message.ack()
        self.came[message.headers["id"]] += 1
        return True

    def _follower(self, task_id: str) -> Signature:
        return self._app.signature("another.task", task_id=task_id, queue=_QUEUE, immutable=True)
