"""Events that no agent has printed keep their places, whoever numbers the others again."""

from __future__ import annotations

import random

import orjson
import pytest

from adapters.events import AssistantText
from ops.redaction import Redactor
from workers.events.asides import Numbering, aside
from workers.events.model import Aside, ControlRequested, to_wire

Line = tuple[int, bytes]


class Book:
    """The ledger's part: what is there already stays."""

    def __init__(self, first_seq: int) -> None:
        self.lines: list[Line] = []
        self._first_seq = first_seq

    def store(self, first_seq: int, lines: list[bytes]) -> None:
        """As `append_events` does."""
        last = self.lines[-1][0] if self.lines else self._first_seq - 1
        assert first_seq <= last + 1, "a gap"
        self.lines += [(seq, line) for seq, line in enumerate(lines, first_seq) if seq > last]


class Teller:
    """One worker."""

    def __init__(self, book: Book, first_seq: int) -> None:
        self.numbers = Numbering(first_seq)
        self.waiting: list[Aside] = []
        self._book = book
        self.resumed = self.numbers.resume(book.lines)

    def tell(self, texts: list[str]) -> None:
        """What the agent has printed."""
        for first_seq, part in self.numbers.number([AssistantText(text) for text in texts]):
            self._book.store(first_seq, [to_wire(event, seq, 1.0) for seq, event in enumerate(part, first_seq)])
        self.add()

    def add(self, *asides: Aside) -> None:
        """What it has not."""
        self.waiting += asides
        if self.numbers.caught_up and self.waiting:
            for first_seq, part in self.numbers.number(self.waiting):
                lines = [to_wire(event, seq, 1.0) for seq, event in enumerate(part, first_seq)]
                self._book.store(first_seq, lines)
            self.waiting = []


@pytest.mark.parametrize("seed", range(200))
def test_nothing_is_lost_or_told_twice_however_often_workers_change(seed: int) -> None:
    chance = random.Random(seed)
    texts = [f"text {number}" for number in range(chance.randrange(1, 30))]
    first_seq = chance.randrange(1, 50)
    book, asked, said, finished = Book(first_seq), 0, [], False
    while not finished:
        teller, told = Teller(book, first_seq), 0
        assert [event["request_id"] for event in teller.resumed] == said
        while not (finished := told == len(texts)) and chance.random() < 0.9:
            if chance.random() < 0.3:
                asked += 1
                teller.add(aside(ControlRequested(str(asked), "interrupt", "ann", None), Redactor({})))
            count = chance.randrange(1, 5)
            teller.tell(texts[told : told + count])
            told = min(told + count, len(texts))
        events = [orjson.loads(line) for _, line in book.lines]
        said = [event["request_id"] for event in events if "aside" in event]
    assert [event["text"] for event in events if "aside" not in event] == texts
    assert [event["seq"] for event in events] == [*range(first_seq, first_seq + len(events))]
    assert len(set(said)) == len(said)
    assert teller.numbers.next_seq == first_seq + len(events)


def test_aside_says_that_it_is_one_and_no_secret() -> None:
    asked = ControlRequested("1", "interrupt", "ann hunter2-hunter2", None)
    line = to_wire(aside(asked, Redactor({"PASSWORD": "hunter2-hunter2"})), 7, 1.5)
    assert orjson.loads(line) == {
        "seq": 7, "at": 1.5, "event": "control_requested", "aside": True, "request_id": "1",
        "control": "interrupt", "by": "ann [redacted:PASSWORD]", "value": None,
    }  # fmt: skip
