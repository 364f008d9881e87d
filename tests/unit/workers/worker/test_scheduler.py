"""When a worker takes turns."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from ops.ledger import Claim, Ledger
from ops.ledger.schema import clocks
from tests.support.ledger.accounts import TTL, a_request, claimed
from workers.worker.scheduler import Scheduler

HOUR = 3600.0


class Worker:
    """One whose time is the test's, and which runs nothing that it takes."""

    def __init__(self, ledger: Ledger, room: int) -> None:
        self.ledger = ledger
        self.taken: list[str] = []
        self._room = room
        context: Any = SimpleNamespace(ledger=ledger, hosts=(), clock=ledger.clock, monotonic=time.monotonic)
        self._scheduler = Scheduler(context, "w2", self)

    def room(self) -> int:
        """See `Starter.room`."""
        return self._room

    def start(self, claim: Claim, _: float) -> asyncio.Event:
        """See `Starter.start`."""
        self.taken.append(claim.turn_id)
        begun = asyncio.Event()
        begun.set()
        return begun

    def look(self) -> list[str]:
        """Look once for turns to take, with room and without."""

        async def once() -> None:
            await self._scheduler._take(1)
            await self._scheduler._end_cancelled()

        asyncio.run(once())
        return self.taken


@pytest.fixture
def ledger(sqlite_url: str) -> Iterator[Ledger]:
    with Ledger.open(sqlite_url) as ledger:
        yield ledger


def cancelled(ledger: Ledger) -> Claim:
    """A turn claimed by another worker after it was cancelled: it needs no room."""
    ledger.queue.submit_many([a_request("t1")], ledger.clock())
    ledger.queue.cancel("t1", ledger.clock())
    return claimed(ledger, "t1", now=ledger.clock())


@pytest.mark.parametrize("room", [0, 1])
def test_dead_workers_turn_is_taken(ledger: Ledger, room: int) -> None:
    ledger.queue.renew([cancelled(ledger)], ledger.clock() - TTL, TTL)
    assert Worker(ledger, room).look() == ["t1"]


@pytest.mark.parametrize("room", [0, 1])
def test_living_workers_turn_is_not_taken_after_the_ledgers_clock_was_set_back(ledger: Ledger, room: int) -> None:
    """This worker has not seen it yet. By its time, the other's claim, just renewed, has long expired."""
    claim = cancelled(ledger)
    with ledger._database.write() as connection:
        connection.execute(clocks.update().values(difference=clocks.c.difference - HOUR))
    ledger.queue.renew([claim], ledger.clock() - HOUR, TTL)
    worker = Worker(ledger, room)
    assert worker.look() == []
    assert not ledger.clock.settled
    ledger.queue.renew([claim], ledger.clock() - TTL, TTL)
    assert worker.look() == [], "its worker may not have seen it yet, either"
