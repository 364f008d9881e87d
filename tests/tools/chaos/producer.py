"""Sends the turns, retrying until the broker has them, and records which tasks must be answered."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence

from celery import Celery, chain, chord, states
from celery.canvas import Signature

from adapters.protocol.session_request import SessionRequest
from ops.ledger import Ledger
from tests.tools.chaos.broker import Broker
from tests.tools.chaos.followers import Followers
from tests.tools.chaos.story import Story
from tests.tools.chaos.timeline import Timeline
from tests.tools.chaos.workload import Run, Sending, Turn, Way
from workers.app import QUEUE, SESSION_TASK, TASK, create_app
from workers.client.sync import Client

_AGAIN_S = 1.0


class Producer:
    """Sends through runturn's client, and through plain Celery."""

    def __init__(self, broker: Broker, ledger: Ledger, patience_s: float, story: Story) -> None:
        self._story = story
        self._app = create_app(broker.url, broker.result_url)
        self._plain = Celery(broker=broker.url, backend=broker.result_url, set_as_current=False)
        self._plain.conf.update(broker.plain, result_backend_thread_safe=True)
        self._plain.backend.on_task_call = _wait_for_nothing
        self._plain.backend.remove_pending_result = _wait_for_nothing
        self.followers = Followers(self._plain)
        self.client = Client(self._app, ledger)
        self._patience_s = patience_s
        self._timeline = Timeline()
        self.sent: set[str] = set()  # task ids
        self.followed: dict[str, Turn | Run] = {}  # what was asked by task ids on which something is to follow

    def plan(self, turns: Sequence[Turn | Run]) -> None:
        """Schedule all sendings and cancellations."""
        for turn in turns:
            for sending in turn.sendings:
                self._timeline.at(sending.at_s, self._insisting(lambda t=turn, s=sending: self.send(t, s)))
            if turn.cancel_at_s is not None:
                self._timeline.at(turn.cancel_at_s, self._insisting(lambda t=turn: self._cancel(t)))

    def send_chords(self, chords: Sequence[tuple[Turn, Turn]]) -> None:
        """Send each pair of turns as a chord, during the calm: a retry would be another chord."""
        self.followers.declare()
        for turns in chords:
            name = f"chord-of-{turns[0].id}"
            header = [self.followers.on(self._signature(TASK, turn, turn.id)) for turn in turns]
            chord(header)(self.followers.last(name))
            self._story.tell(f"{name} is sent")
            for turn in turns:
                self._note(turn, turn.id)

    def play(self) -> None:
        """Send everything at its time. Raises the last error of a sending that keeps failing."""
        self._timeline.play()

    def stop(self) -> None:
        """Stop sending, from any thread."""
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

    def _note(self, asked: Turn | Run, task_id: str) -> None:
        self.sent.add(task_id)
        self.followed[task_id] = asked

    def _send_by_name(self, turn: Turn | Run, sending: Sending) -> None:
        task = self._signature(SESSION_TASK if isinstance(turn, Run) else TASK, turn, sending.task_id)
        if any(each.way is Way.CLIENT and each.task_id == sending.task_id for each in turn.sendings):
            task.apply_async()  # whichever message comes first says what follows, and the client's says nothing
            return
        self.followers.on(task)
        if isinstance(turn, Turn) and turn.then is not None and sending in turn.sendings:
            then = turn.then
            chain(task, self.followers.on(self._signature(TASK, then, then.id))).apply_async()
            self._note(then, then.id)
        else:
            task.apply_async()
        self._note(turn, sending.task_id)

    def _signature(self, task: str, asked: Turn | Run, task_id: str) -> Signature:
        document = (
            asked.request.document()
            if isinstance(asked.request, SessionRequest)
            else asked.request.model_dump(mode="json", exclude_defaults=True)
        )
        return self._plain.signature(task, args=(document,), task_id=task_id, queue=QUEUE, immutable=True)

    def _cancel(self, turn: Turn | Run) -> None:
        left = self.client.cancel(turn.id)
        self._story.tell(f"{turn.id} is cancelled{'' if left else ', too late'}")

    def answered(self, task_id: str) -> bool:
        """Return True if the task has a result."""
        try:
            return self._app.backend.get_task_meta(task_id)["status"] in states.READY_STATES
        except Exception:  # backends raise what their servers' clients raise
            return False

    def _insisting(self, deed: Callable[[], object]) -> Callable[[], None]:
        """Wrap a deed so that a failure is retried a second later, until patience runs out."""
        tries = itertools.count()
        ends = time.monotonic() + self._patience_s

        def insist() -> None:
            try:
                deed()
            except Exception as error:
                if next(tries) == 0:
                    self._story.tell(f"a producer retries after {error!r:.160}")
                if time.monotonic() > ends:
                    raise
                self._timeline.after(_AGAIN_S, insist)

        return insist


def _wait_for_nothing(*_: object) -> None:
    """Replace the subscription to each result: only states are read."""
