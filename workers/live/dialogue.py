"""Dialogue between one attempt's running agent and its producer."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from adapters.live import Conversation, Permission, Verdict
from workers.events.asides import asides_in
from workers.events.recorder import EventRecorder
from workers.live.controls import Controls
from workers.live.messages import Reply, Said
from workers.live.permissions import PermissionRequests


class Dialogue:
    """Requests and questions of one attempt. Use on the loop that runs the turn, except for `reply`."""

    def __init__(self, recorder: EventRecorder, clock: Callable[[], float], refusal: str | None) -> None:
        """`refusal` is why the agent takes no requests at all; None: it does."""
        self._recorder = recorder
        self._controls = Controls(recorder, clock)
        self._questions = PermissionRequests(recorder, clock)
        self._refusal = refusal
        self._left = False

    def recall(self, stored: Iterable[tuple[int, bytes]]) -> None:
        """Restore what was said to the agents of earlier attempts, from their stored events."""
        self._controls.recall(asides_in(stored).values())

    def resume(self, stored: Iterable[tuple[int, bytes]]) -> None:
        """Continue from an earlier worker, which stored these events of the attempt."""
        asides = self._recorder.resume(stored)
        self._controls.resume(asides)
        self._questions.resume(asides)

    def open(self, conversation: Conversation) -> None:
        """Carry out requests from now on, including those already waiting."""
        self._controls.open(conversation)

    def close(self, *, ended: bool) -> None:
        """Stop: the agent has ended, or is left to the next worker."""
        if not ended:
            self._left = True
            self._questions.leave()
        self._controls.close(ended=ended)

    async def ask(self, permission: Permission, timeout_s: float) -> Verdict | None:
        """Ask the producer for permission; None: no answer in time."""
        return await self._questions.ask(permission, timeout_s)

    def reply(self, said: Said) -> Reply | None:
        """Return the immediate reply to a producer's message; None: the next worker takes it.

        May be called from any thread.
        """
        if self._left:
            return None
        if self._refusal is not None:
            return Reply(refused=self._refusal)
        return (self._questions if isinstance(said.what, Verdict) else self._controls).reply(said)

    def hear(self, said: Said) -> None:
        """Act on a producer's message."""
        if isinstance(said.what, Verdict):
            self._questions.take(said, said.what)
        else:
            self._controls.take(said, said.what)
