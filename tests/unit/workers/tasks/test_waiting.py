"""The threads in which turns' tasks are executed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

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
