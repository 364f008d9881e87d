"""The threads in which turns' tasks are executed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from ops.ledger import Ledger
from ops.ledger.schema import clocks
from tests.support.ledger.accounts import a_failure, a_request
from tests.support.waiting import until
from workers.tasks.delivery import Execution
from workers.tasks.waiting import WaitingTasks


class Executor:
    """Executes tasks once they are let go."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.go_on = threading.Event()

    def execute(self, waiter: Any, work: Callable[[], Any], asked: object, **_: object) -> Execution:
        self.begun.append(waiter.turn_id)
        self.go_on.wait()
        work()
        return Execution(work, done=True)


class Turns:
    """Turns that are let go by this worker as soon as it is at them."""

    def __init__(self) -> None:
        self.driven: list[str] = []
        self.executor = Executor()
        self.tasks = WaitingTasks(self.executor, None, lambda: 1.0)  # type: ignore[arg-type]  # all that it needs here

    def start(self, turn_id: str) -> None:
        request = SimpleNamespace(traceparent=None)
        claim: Any = SimpleNamespace(
            turn_id=turn_id, session_run=None, waiter=None, attempts=(), open=None, request=request
        )
        run: Any = SimpleNamespace(claim=claim, placed=Future())
        self.tasks.start(run, lambda: self._drive(turn_id))

    def _drive(self, turn_id: str) -> Future[Any]:
        self.driven.append(turn_id)
        driven: Future[Any] = Future()
        driven.set_result(None)
        return driven


def test_turn_that_comes_back_at_once_lets_its_last_execution_end_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.tasks.waiting._ORDERLY_S", 600.0)
    turns = Turns()
    executor = turns.executor
    turns.start("parked")
    until(lambda: executor.begun == ["parked"], "the first execution")
    turns.start("parked")
    turns.start("other")
    until(lambda: "other" in executor.begun, "another turn")
    assert executor.begun == ["parked", "other"]
    executor.go_on.set()
    until(lambda: len(turns.driven) == 3, "all of them")
    assert executor.begun == ["parked", "other", "parked"]


def test_turn_waits_for_its_last_execution_no_longer_than_that_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.tasks.waiting._ORDERLY_S", 0.01)
    turns = Turns()
    for _ in range(2):
        turns.start("parked")
    until(lambda: turns.executor.begun == ["parked", "parked"], "both executions")
    turns.executor.go_on.set()
    until(lambda: len(turns.driven) == 2, "their ends")


# -- the ledger's clock is set

HOUR = 3600.0


class Told:
    """In the place of Celery: the tasks that it was to execute, the first of which is held up until it may end."""

    def __init__(self) -> None:
        self.tasks: list[str] = []
        self.go_on = threading.Event()

    def execute(self, waiter: Any, work: Callable[[], Any], *_: object) -> Execution:
        self.tasks.append(waiter.task_id)
        self.go_on.wait()
        return Execution(work(), done=True)


class Teller:
    """A worker that tells tasks, with its own view of the ledger and its clock."""

    def __init__(self, url: str) -> None:
        self.ledger = Ledger.open(url)
        self.told = Told()
        self.tasks = WaitingTasks(self.told, self.ledger, self.ledger.clock)  # type: ignore[arg-type]

    def tell(self) -> list[str]:
        """Tell what is overdue and what has just come, and return what was told so far."""
        self.tasks.give_late(self.ledger.clock())
        self.tasks.give("t1")
        self.tasks.close(60)
        return self.told.tasks


@pytest.fixture
def tellers(sqlite_url: str) -> Iterator[tuple[Teller, Teller]]:
    """One that is telling a task, and another one."""
    slow, other = Teller(sqlite_url), Teller(sqlite_url)
    other.told.go_on.set()
    with slow.ledger as ledger, other.ledger:
        ledger.queue.admit(a_request("t1"), "asked", ledger.clock())
        ledger.queue.settle_unclaimed("t1", a_failure("t1"), ledger.clock())
        slow.tasks.give("t1")
        until(lambda: slow.told.tasks, "the task to be told")
        yield slow, other
        slow.told.go_on.set()
        slow.tasks.close(60)


def set_clock(ledger: Ledger, step: float) -> None:
    with ledger._database.write() as connection:
        connection.execute(clocks.update().values(difference=clocks.c.difference + step))


def test_task_is_told_once_though_its_lease_looks_expired_by_the_ledgers_new_time(
    tellers: tuple[Teller, Teller],
) -> None:
    """The ledger's clock is set ahead, and the other one sees it first."""
    slow, other = tellers
    set_clock(other.ledger, HOUR)
    other.ledger.clock.look()
    assert other.tell() == []
    slow.tasks.give_late(slow.ledger.clock.read())
    other.ledger.clock._set_at = float("-inf")  # as it will be once all have had the time to renew theirs
    assert other.tell() == []
    assert slow.told.tasks == ["asked"]


def test_task_is_told_once_though_its_lease_looks_expired_by_the_ledgers_old_time(
    tellers: tuple[Teller, Teller],
) -> None:
    """The ledger's clock is set back, and the one that tells it sees it first."""
    slow, other = tellers
    set_clock(other.ledger, -HOUR)
    slow.tasks.give_late(slow.ledger.clock.read())
    assert other.ledger.clock.settled
    assert other.tell() == []
    assert slow.told.tasks == ["asked"]
