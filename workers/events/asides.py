"""Events of an attempt that its agent did not print: producers' requests to it, and its questions to them.

The events that an agent prints are numbered by reading its spool from the beginning, and a worker that takes over
does so again. Asides are in no spool: that worker finds them in the ledger, and skips their numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import orjson

from ops.redaction import Redactor
from workers.events.model import Aside, AsideEvent

_HEAD = re.compile(rb'\{"seq":(\d+),"at":[\d.]+,"event":"\w+","aside":true')  # as `model.to_wire` writes it

T = TypeVar("T")


class Numbering:
    """Sequence numbers of one attempt's events."""

    def __init__(self, first_seq: int) -> None:
        self.next_seq = first_seq
        self._taken: frozenset[int] = frozenset()
        self._stored_to = first_seq - 1

    @property
    def caught_up(self) -> bool:
        """True once everything that an earlier worker stored was read again. Asides have to wait for that."""
        return self.next_seq > self._stored_to

    def resume(self, stored: Iterable[tuple[int, bytes]]) -> list[Mapping[str, Any]]:
        """Continue from an earlier worker, which stored these events; return the asides among them."""
        events = list(stored)
        if events:
            self._stored_to = events[-1][0]
        asides = asides_in(events)
        self._taken = frozenset(asides)
        self._pass_taken()
        return list(asides.values())

    def number(self, events: Sequence[T]) -> Iterator[tuple[int, Sequence[T]]]:
        """Number the agent's next events: yield contiguous parts of them, each with its first number."""
        if not self._taken:
            first_seq, self.next_seq = self.next_seq, self.next_seq + len(events)
            yield first_seq, events
            return
        start = 0
        while start < len(events):
            until = min((seq for seq in self._taken if seq > self.next_seq), default=self.next_seq + len(events))
            part = events[start : start + until - self.next_seq]
            first_seq, self.next_seq = self.next_seq, self.next_seq + len(part)
            self._pass_taken()
            start += len(part)
            yield first_seq, part

    def _pass_taken(self) -> None:
        while self.next_seq in self._taken:
            self.next_seq += 1


def asides_in(stored: Iterable[tuple[int, bytes]]) -> dict[int, Mapping[str, Any]]:
    """Return the asides among stored events, by number."""
    return {seq: orjson.loads(line) for seq, line in stored if _HEAD.match(line)}


def aside(event: AsideEvent, redactor: Redactor) -> Aside:
    """Return an event as an aside, with the known secrets redacted."""
    return Aside(event.name, redactor.line(orjson.dumps(event)))
