"""Threads for calls that block, that may hang, and that cannot be called off."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class DaemonExecutor(ThreadPoolExecutor):
    """Daemon threads: `size` of them that take one call after the other, or else a new one for each call.

    A call that hangs holds up no end of the process, and no end of a loop whose default executor this is. With a
    thread for each, it holds up no other call either, and no future can be cancelled: who waits for one gives up.
    """

    def __init__(self, size: int | None = None, name: str = "daemon") -> None:
        super().__init__(size, name)  # whose own threads are never started: Python waits for those
        self._size = size
        self._calls: SimpleQueue[tuple[Future[object], Callable[[], object]]] = SimpleQueue()
        for number in range(size or 0):
            threading.Thread(target=self._work, name=f"{name}-{number}", daemon=True).start()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Have it called by the next thread that is free."""
        future: Future[T] = Future()
        call = partial(fn, *args, **kwargs)
        if self._size is None:
            future.set_running_or_notify_cancel()
            threading.Thread(target=_carry_out, args=(future, call), daemon=True).start()
        else:
            self._calls.put((future, call))  # type: ignore[arg-type]  # a future of anything
        return future

    def _work(self) -> None:
        while True:
            future, call = self._calls.get()
            if future.set_running_or_notify_cancel():
                _carry_out(future, call)
            del future, call  # or what it has returned would live until the next one


def _carry_out(future: Future[T], call: Callable[[], T]) -> None:
    try:
        outcome = call()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(outcome)
