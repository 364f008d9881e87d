"""Threads for calls that block, and that may hang while the process is to end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class DaemonPool(ThreadPoolExecutor):
    """A few threads that do one thing after the other. The end of the process waits for none of them."""

    def __init__(self, size: int, name: str) -> None:
        super().__init__(size, name)  # whose own threads are never started: Python waits for those
        self._jobs: SimpleQueue[tuple[Future[object], Callable[[], object]]] = SimpleQueue()
        for number in range(size):
            threading.Thread(target=self._work, name=f"{name}-{number}", daemon=True).start()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Have it done by the next thread that is free."""
        future: Future[T] = Future()
        self._jobs.put((future, partial(fn, *args, **kwargs)))  # type: ignore[arg-type]  # a future of anything
        return future

    def _work(self) -> None:
        while True:
            future, job = self._jobs.get()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                outcome = job()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(outcome)
            del future, job  # or what it has returned would live until the next one
