"""The threads in which turns' tasks are executed."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from tests.waiting import until
from workers.turn_tasks import TurnTasks


class Answers:
    """Executes tasks until they are let go."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.go_on = threading.Event()

    def execute(self, task: Any, work: Any, ended: Any) -> None:
        self.begun.append(task.asked)
        work.driven = object()
        self.go_on.wait()


def a_run(turn_id: str) -> Any:
    request = SimpleNamespace(traceparent=None)
    claim = SimpleNamespace(turn_id=turn_id, session_run=None, tasks={}, attempts=(), open=None, request=request)
    return SimpleNamespace(claim=claim)


def turn_tasks(answers: Answers, executed: list[Any]) -> TurnTasks:
    executor, driver = SimpleNamespace(described=lambda _: "()"), SimpleNamespace(executed=executed.append)
    return TurnTasks(executor, answers, driver, None)  # type: ignore[arg-type]


def test_turn_that_comes_back_at_once_lets_its_last_execution_end_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.turn_tasks._ORDERLY_S", 600.0)
    executed: list[Any] = []
    tasks = turn_tasks(answers := Answers(), executed)
    tasks.start(a_run("parked"))
    until(lambda: answers.begun == ["parked"], "the first execution")
    tasks.start(a_run("parked"))
    tasks.start(a_run("other"))
    until(lambda: "other" in answers.begun, "another turn")
    assert answers.begun == ["parked", "other"]
    answers.go_on.set()
    until(lambda: len(executed) == 3, "all of them")
    assert answers.begun == ["parked", "other", "parked"]


def test_turn_waits_for_its_last_execution_no_longer_than_that_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.turn_tasks._ORDERLY_S", 0.01)
    executed: list[Any] = []
    tasks = turn_tasks(answers := Answers(), executed)
    for _ in range(2):
        tasks.start(a_run("parked"))
    until(lambda: answers.begun == ["parked", "parked"], "both executions")
    answers.go_on.set()
    until(lambda: len(executed) == 2, "their ends")
