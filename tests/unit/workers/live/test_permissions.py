"""What an agent asks its producer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

from adapters.live import Permission, Verdict
from ops.redaction import Redactor
from workers.context import WorkerContext
from workers.events.model import AnyEvent, to_wire
from workers.events.recorder import EventRecorder
from workers.live.messages import Reply, Said
from workers.live.permissions import PermissionRequests


class SlowPump:
    """A pump whose ledger takes its time. Notes what was told to those who watch."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.flushing = threading.Event()
        self.stored = threading.Event()

    def emit(self, claim: object, first_seq: int, events: Sequence[AnyEvent], at: float) -> None:
        self.publish("t", first_seq, events, at)

    def store(self, claim: object, first_seq: int, events: Sequence[AnyEvent], at: float) -> None:
        assert not self.flushing.is_set()

    def flush(self, turn_id: str) -> None:
        self.flushing.set()
        assert self.stored.wait(60)

    def publish(self, turn_id: str, first_seq: int, events: Sequence[AnyEvent], at: float) -> None:
        self.told += [to_wire(event, seq, at).decode() for seq, event in enumerate(events, first_seq)]


async def test_no_producer_hears_that_an_answer_stands_before_the_ledger_has_it() -> None:
    event_writer = SlowPump()
    context = cast(WorkerContext, SimpleNamespace(event_writer=event_writer, clock=lambda: 1.0))
    claim, attempt = cast(Any, SimpleNamespace(turn_id="t")), cast(Any, SimpleNamespace(first_seq=1))
    questions = PermissionRequests(
        EventRecorder(context.event_writer, context.clock, claim, attempt, Redactor({})), lambda: 1.0
    )
    asking = asyncio.create_task(questions.ask(Permission("Bash", "toolu_1", {}), 60.0))
    await asyncio.sleep(0)
    said = Said("t", "toolu_1", "me", 60.0, Verdict(True))
    questions.take(said, Verdict(True))
    await asyncio.to_thread(event_writer.flushing.wait)
    assert questions.reply(said) == Reply()  # it is taken; no more is known
    assert ["permission_answered" in line for line in event_writer.told] == [False]
    event_writer.stored.set()
    assert await asking == Verdict(True)
    assert ["permission_answered" in line for line in event_writer.told] == [False, True]
    known = questions.reply(said)
    assert known is not None and known.outcome is not None and known.outcome["allowed"] is True
