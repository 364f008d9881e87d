"""The pool of a worker: an operator's own tasks, each in a thread, as many as there are places."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.waiting import until
from workers.worker.pool import TurnPool, pool_of


class Turns:
    """Of a worker that has none."""

    running = 0

    def resize(self, room: int) -> None:
        """See `pool.Turns`."""

    def drain(self) -> None:
        """See there."""

    def finish(self) -> None:
        """See there."""


def pool(limit: int, post: Callable[[Callable[[], object]], object] = lambda call: call()) -> TurnPool:
    return pool_of(Turns(), post)(limit=limit)


def apply(pool: TurnPool, target: Callable[[], object], told: list[Any]) -> None:
    pool.on_apply(
        target,
        (),
        {},
        accept_callback=lambda *_: told.append("accepted"),
        callback=told.append,
        error_callback=lambda failure: told.append(failure.type),
    )


def test_celery_is_told_on_its_own_thread() -> None:
    """It acknowledges messages then, on the connection that it reads from."""
    posted: list[Callable[[], object]] = []
    told: list[Any] = []
    apply(pool(1, posted.append), lambda: "ended", told)
    until(lambda: len(posted) == 2, "the end of the task")
    assert told == []
    for call in posted:
        call()
    assert told == ["accepted", "ended"]


@pytest.mark.parametrize("error", [ConnectionError("the result backend is away"), SystemExit(1)])
def test_task_that_comes_to_no_end_has_failed(error: BaseException) -> None:
    """Celery's tracer raises there; the message would hold a place of the prefetch for good."""

    def target() -> None:
        raise error

    small, told = pool(1), list[Any]()
    apply(small, target, told)
    until(lambda: len(told) == 2, "Celery to be told")
    assert told == ["accepted", type(error)]
    apply(small, lambda: "ended", told)
    until(lambda: told[2:] == ["accepted", "ended"], "the next one")


def test_as_many_tasks_run_as_there_are_places_by_now() -> None:
    """With --autoscale, Celery makes the pool with the least of them."""
    small, go, begun = pool(1), threading.Event(), list[int]()
    told: list[Any] = []
    for number in range(4):
        apply(small, lambda number=number: (begun.append(number), go.wait(60)), told)  # type: ignore[misc]
    until(lambda: len(begun) == 1, "the first one")
    small.grow(2)
    until(lambda: len(begun) == 3, "two more")
    small.shrink(2)
    go.set()
    until(lambda: len(told) == 8, "all")
    assert sorted(begun) == [0, 1, 2, 3]
