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


def questions_to(event_writer: SlowPump) -> PermissionRequests:
    """Those of one attempt."""
    context = cast(WorkerContext, SimpleNamespace(event_writer=event_writer, clock=lambda: 1.0))
    claim, attempt = cast(Any, SimpleNamespace(turn_id="t")), cast(Any, SimpleNamespace(first_seq=1))
    recorder = EventRecorder(context.event_writer, context.clock, claim, attempt, Redactor({}))
    return PermissionRequests(recorder, lambda: 1.0)


async def test_agent_that_asks_without_end_is_not_asked_for_any_more() -> None:
    event_writer = SlowPump()
    questions = questions_to(event_writer)
    asking = [asyncio.create_task(questions.ask(Permission("Bash", f"t{n}", {}), 60.0)) for n in range(1000)]
    await asyncio.sleep(0)
    assert len(event_writer.told) == 1000
    assert await questions.ask(Permission("Bash", "one more", {}), 60.0) is None
    assert len(event_writer.told) == 1000
    questions.leave()
    for task in asking:
        task.cancel()
    await asyncio.gather(*asking, return_exceptions=True)


async def test_question_that_no_answer_could_name_is_not_asked() -> None:
    event_writer = SlowPump()
    assert await questions_to(event_writer).ask(Permission("Bash", "t" * 201, {}), 60.0) is None
    assert event_writer.told == []


async def test_huge_input_of_a_tool_is_shown_as_its_beginning() -> None:
    event_writer = SlowPump()
    given = {f"key{number}": ["x" * 3000] * 10 for number in range(100)}
    asking = asyncio.create_task(questions_to(event_writer).ask(Permission("Bash", "t", cast(Any, given)), 60.0))
    await asyncio.sleep(0)
    (told,) = event_writer.told
    assert '"input":{"input":"{\\"key0\\":[\\"xxx' in told
    assert len(told) < 10_000
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)


async def test_no_producer_hears_that_an_answer_stands_before_the_ledger_has_it() -> None:
    event_writer = SlowPump()
    questions = questions_to(event_writer)
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
