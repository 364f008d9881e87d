"""Threads for what may hang, and cannot be called off."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class DaemonExecutor(ThreadPoolExecutor):
    """Does each piece of work in a daemon thread of its own.

    One that hangs holds up no other, no end of the process, and no end of a loop whose default executor this is.
    Futures cannot be cancelled; who waits for one gives up.
    """

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Begin at once."""
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()
        work = partial(fn, *args, **kwargs)
        threading.Thread(target=_carry_out, args=(work, future), daemon=True).start()
        return future


def _carry_out(work: Callable[[], T], future: Future[T]) -> None:
    try:
        outcome = work()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(outcome)
