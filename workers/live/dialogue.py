"""What is said between one attempt's agent and its producer, while the agent runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from adapters.live import Conversation, Permission, Verdict
from workers.events.asides import asides_in
from workers.events.recorder import EventRecorder
from workers.live.controls import Controls
from workers.live.messages import Reply, Said
from workers.live.permissions import PermissionRequests


class Dialogue:
    """Belongs to the loop that runs the turn, but for `reply`."""

    def __init__(self, recorder: EventRecorder, clock: Callable[[], float], refusal: str | None) -> None:
        """`refusal` is why its agent cannot be talked to at all; None: it can."""
        self._recorder = recorder
        self._controls = Controls(recorder, clock)
        self._questions = PermissionRequests(recorder, clock)
        self._refusal = refusal
        self._left = False

    def recall(self, stored: Iterable[tuple[int, bytes]]) -> None:
        """Know what was said to the agents of earlier attempts, of which the ledger has these events."""
        self._controls.recall(asides_in(stored).values())

    def resume(self, stored: Iterable[tuple[int, bytes]]) -> None:
        """Go on where a worker before us was, which has stored these events of the attempt."""
        asides = self._recorder.resume(stored)
        self._controls.resume(asides)
        self._questions.resume(asides)

    def open(self, conversation: Conversation) -> None:
        """The agent takes requests from now on; those that came before have waited."""
        self._controls.open(conversation)

    def close(self, *, ended: bool) -> None:
        """Its agent has ended, or is left to the next worker."""
        if not ended:
            self._left = True
            self._questions.leave()
        self._controls.close(ended=ended)

    async def ask(self, permission: Permission, timeout_s: float) -> Verdict | None:
        """See `adapters.live.Desk`."""
        return await self._questions.ask(permission, timeout_s)

    def reply(self, said: Said) -> Reply | None:
        """What a producer is told at once that says something to the agent; None: that is the next worker's.

        May be called from any thread.
        """
        if self._left:
            return None
        if self._refusal is not None:
            return Reply(refused=self._refusal)
        return (self._questions if isinstance(said.what, Verdict) else self._controls).reply(said)

    def hear(self, said: Said) -> None:
        """Do what it says."""
        if isinstance(said.what, Verdict):
            self._questions.take(said, said.what)
        else:
            self._controls.take(said, said.what)
