"""A producer's own Celery application beside a fleet: JSON, the default queue, and nothing of runturn."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from celery import Celery
from celery.canvas import Signature
from celery.result import AsyncResult

from tests.support.fleets.fleet import WAIT_S, Fleet
from workers.app import TASK


class Company:
    """The application."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        broker = fleet.environment.get("RUNTURN_BROKER_URL", fleet.broker.url)
        self.app = Celery("company", broker=broker, backend=fleet.broker.url, set_as_current=False)

    def declare(self) -> None:
        """Its workers have been here."""
        with self.own_queue():
            pass

    def turn(self, recording: Path, turn_id: str, **fields: Any) -> Signature:
        """The signature of a turn that replays a recording; it takes no result of another task."""
        document = self._fleet.recorded(recording, turn_id=turn_id, **fields).model_dump(
            mode="json", exclude_defaults=True
        )
        return self.app.signature(TASK, args=(document,), queue="runturn", task_id=turn_id, immutable=True)

    def turn_after(self, recording: Path, turn_id: str, after: object, **fields: Any) -> Signature:
        """The same of a turn that takes from the task before it."""
        turn = self.turn(recording, turn_id, **fields)
        turn.args[0]["after"] = after
        return turn.set(immutable=False)

    def body(self, name: str) -> Signature:
        """Of one of its own tasks."""
        return self.app.signature(f"company.{name}", task_id=name)

    @contextmanager
    def own_queue(self) -> Iterator[Any]:
        """What its workers would get."""
        with self.app.connection_for_read() as connection, connection.SimpleQueue("celery") as queue:
            yield queue

    def received(self) -> tuple[str, Any]:
        """The id and the first argument of the next task of its own."""
        with self.own_queue() as queue:
            message = queue.get(timeout=WAIT_S)
            message.ack()
            return message.headers["id"], message.payload[0][0]

    def state(self, task_id: str) -> str:
        """What Celery says of a task."""
        return str(AsyncResult(task_id, app=self.app).state)
