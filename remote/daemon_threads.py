"""Daemon threads for blocking calls that may hang and cannot be cancelled."""

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
    """Executor on daemon threads: `size` threads that share all calls, or else a new thread for each call.

    A hanging call delays neither the exit of the process nor the end of a loop whose default executor this is.
    With a thread for each call, it delays no other call either, and futures cannot be cancelled: callers give up.
    """

    def __init__(self, size: int | None = None, name: str = "daemon") -> None:
        super().__init__(size, name)  # its own threads are never started: Python waits for those at exit
        self._size = size
        self._calls: SimpleQueue[tuple[Future[object], Callable[[], object]]] = SimpleQueue()
        for number in range(size or 0):
            threading.Thread(target=self._work, name=f"{name}-{number}", daemon=True).start()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run the call on the next free thread."""
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
            del future, call  # else the result would live until the next call


def _carry_out(future: Future[T], call: Callable[[], T]) -> None:
    try:
        outcome = call()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(outcome)
