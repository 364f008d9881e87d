"""Who sends the turns: tries until the broker has them, and notes which tasks are to be answered."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence

from celery import Celery, states

from ops.ledger import Ledger
from tests.chaos.broker import Broker
from tests.chaos.story import Story
from tests.chaos.timeline import Timeline
from tests.chaos.workload import Run, Sending, Turn, Way
from workers.app import QUEUE, SESSION_TASK, TASK, create_app
from workers.client import Client

_AGAIN_S = 1.0


class Producer:
    """Sends by runturn's client, and as somebody does who knows nothing but Celery."""

    def __init__(self, broker: Broker, ledger: Ledger, patience_s: float, story: Story) -> None:
        self._story = story
        self._app = create_app(broker.url, broker.result_url)
        self._plain = Celery(broker=broker.url, set_as_current=False)  # waits for no answer, so it has no backend
        self._plain.conf.update(broker.plain)
        self.client = Client(self._app, ledger)
        self._patience_s = patience_s
        self._timeline = Timeline()
        self.sent: set[str] = set()  # task ids

    def plan(self, turns: Sequence[Turn | Run]) -> None:
        """Put all sendings and cancels on the timeline."""
        for turn in turns:
            for sending in turn.sendings:
                self._timeline.at(sending.at_s, self._insisting(lambda t=turn, s=sending: self.send(t, s)))
            if turn.cancel_at_s is not None:
                self._timeline.at(turn.cancel_at_s, self._insisting(lambda t=turn: self._cancel(t)))

    def play(self) -> None:
        """Send everything at its time. Raises what the last try of a sending has raised."""
        self._timeline.play()

    def stop(self) -> None:
        """Send no more; from any thread."""
        self._timeline.stop()

    def send(self, turn: Turn | Run, sending: Sending) -> None:
        """Send once."""
        if sending.way is Way.NAME:
            self._send_by_name(turn, sending)
        elif isinstance(turn, Run):
            self.client.enqueue_session(turn.request)
        else:
            self.client.enqueue(turn.request)
        self._story.tell(f"{turn.id} is sent by {sending.way}, as task {sending.task_id}")
        self.sent.add(sending.task_id)

    def _send_by_name(self, turn: Turn | Run, sending: Sending) -> None:
        if isinstance(turn, Run):
            task, document = SESSION_TASK, turn.request.document()
        else:
            task, document = TASK, turn.request.model_dump(mode="json", exclude_defaults=True)
        handle = self._plain.send_task(task, args=[document], task_id=sending.task_id, queue=QUEUE)
        handle.backend = None

    def _cancel(self, turn: Turn | Run) -> None:
        left = self.client.cancel(turn.id)
        self._story.tell(f"{turn.id} is cancelled{'' if left else ', too late'}")

    def answered(self, task_id: str) -> bool:
        """Whether the task's result is there."""
        try:
            return self._app.backend.get_task_meta(task_id)["status"] in states.READY_STATES
        except Exception:  # backends raise what their servers' clients raise
            return False

    def _insisting(self, deed: Callable[[], object]) -> Callable[[], None]:
        """The same; what fails is tried again a second later, for a while."""
        tries = itertools.count()
        ends = time.monotonic() + self._patience_s

        def insist() -> None:
            try:
                deed()
            except Exception as error:
                if next(tries) == 0:
                    self._story.tell(f"a producer has to try again: {error!r:.160}")
                if time.monotonic() > ends:
                    raise
                self._timeline.after(_AGAIN_S, insist)

        return insist
