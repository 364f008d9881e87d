"""Records the events of one attempt: numbers them, and passes them to the writer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ops.ledger import Attempt, Claim
from ops.redaction import Redactor
from workers.events.asides import Numbering, aside
from workers.events.model import AnyEvent, Aside, AsideEvent
from workers.events.writer import EventWriter
from workers.ledger_calls import LedgerCalls


class EventRecorder:
    """Event recorder of one attempt. Use on the loop that runs the turn."""

    def __init__(
        self,
        event_writer: EventWriter,
        clock: Callable[[], float],
        claim: Claim,
        attempt: Attempt,
        redactor: Redactor,
    ) -> None:
        self._event_writer = event_writer
        self._clock = clock
        self._claim = claim
        self._redactor = redactor
        self._numbers = Numbering(attempt.first_seq)
        self._asides: list[Aside] = []  # waiting until stored events are read again
        self._caught_up = asyncio.Event()
        self._ledger_call = LedgerCalls()
        self._closed = False

    @property
    def next_seq(self) -> int:
        """The number of the attempt's next event."""
        return self._numbers.next_seq

    def resume(self, stored: Iterable[tuple[int, bytes]]) -> list[Mapping[str, Any]]:
        """Continue from an earlier worker, which stored these events; return the asides among them."""
        return self._numbers.resume(stored)

    def go_on_from(self, seq: int) -> None:
        """Give the next event this number: an earlier worker stored those below."""
        self._numbers.next_seq = seq

    def tell(self, events: Sequence[AnyEvent]) -> None:
        """Record the agent's events, in the order of its stream."""
        for first_seq, part in self._numbers.number(events) if events else ():
            self._event_writer.emit(self._claim, first_seq, part, self._clock())
        self._pass_on()

    def aside(self, event: AsideEvent) -> None:
        """Record an event that the agent did not print, with the known secrets redacted."""
        self._asides.append(aside(event, self._redactor))
        self._pass_on()

    async def record(self, event: AsideEvent) -> None:
        """Store an aside in the ledger, then publish it, so that what is published stands. Raises StaleClaim."""
        self._pass_on()  # earlier asides get their numbers first
        await self._caught_up.wait()
        if self._closed:
            return
        at = self._clock()
        ((seq, part),) = self._numbers.number([aside(event, self._redactor)])
        self._event_writer.store(self._claim, seq, part, at)
        await self._ledger_call(self._event_writer.flush, self._claim.turn_id)
        self._event_writer.publish(self._claim.turn_id, seq, part, at)

    def close(self) -> None:
        """Stop: the attempt is over, or another worker's, and later events are not numbered here."""
        self._closed = True

    async def recorded(self) -> None:
        """Wait until the ledger has all events. Raises StaleClaim."""
        await self._caught_up.wait()
        await self._ledger_call(self._event_writer.flush, self._claim.turn_id)

    def _pass_on(self) -> None:
        if self._closed or not self._numbers.caught_up:
            return
        self._caught_up.set()
        if self._asides:
            asides, self._asides = self._asides, []
            for first_seq, part in self._numbers.number(asides):
                self._event_writer.emit(self._claim, first_seq, part, self._clock())
