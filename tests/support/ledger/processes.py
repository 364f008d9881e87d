"""Processes that do the same thing at the same moment."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from types import TracebackType
from typing import Any, Self, TypeVar

from tests.support.fleets.forked import CONTEXT

T = TypeVar("T")

_barrier: Any = None


class Crew:
    """A number of processes, started once."""

    def __init__(self, size: int) -> None:
        self._size = size
        barrier = CONTEXT.Barrier(size)
        self._pool = ProcessPoolExecutor(size, CONTEXT, initializer=_meet_at, initargs=(barrier,))

    def together(self, work: Callable[..., T], *arguments: Any) -> list[T]:
        """Call `work(number, *arguments)` in every process; none starts before all are ready."""
        calls = [self._pool.submit(_call, work, number, arguments) for number in range(self._size)]
        return [call.result(timeout=240) for call in calls]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        self._pool.shutdown(cancel_futures=True)


def _meet_at(barrier: Any) -> None:
    global _barrier  # noqa: PLW0603  # what an initializer of a process pool leaves behind has no other place
    _barrier = barrier


def _call(work: Callable[..., T], number: int, arguments: tuple[Any, ...]) -> T:
    _barrier.wait(timeout=240)
    return work(number, *arguments)
