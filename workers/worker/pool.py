"""Celery's pool: turns are coroutines, so it only limits how many may run.

An operator's own tasks (setting `include`) are executed here, each in a thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Protocol

import structlog
from billiard.einfo import ExceptionInfo
from celery import signals
from celery.concurrency.base import BasePool, apply_target
from celery.worker import state
from celery.worker.autoscale import Autoscaler

from workers.tasks.delivery import summary

log = structlog.get_logger(__name__)


class Turns(Protocol):
    """The turns of a worker."""

    def resize(self, room: int) -> None:
        """Set how many may run at a time."""
        ...

    @property
    def running(self) -> int:
        """Return how many are running."""
        ...

    def drain(self) -> None:
        """Leave them to the next worker."""
        ...

    def finish(self) -> None:
        """Wait for the turns if a stopping worker should do so."""
        ...


class TurnPool(BasePool):  # type: ignore[misc]  # Celery has no types
    """The limit of a worker's turns, and threads for its other tasks."""

    turns: ClassVar[Turns]
    post: ClassVar[Callable[[Callable[[], object]], None]]  # calls it on the thread of Celery's loop
    limit: int
    body_can_be_buffer = True
    signal_safe = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._places = threading.Condition()
        self._taken = 0
        signals.worker_process_init.send(sender=None)  # as Celery's solo pool does

    def on_apply(
        self,
        target: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        timeout: float | None = None,
        soft_timeout: float | None = None,
        correlation_id: str | None = None,
        **options: Any,
    ) -> None:
        """Execute a task in a thread; the process does not wait for it when it exits."""
        if timeout or soft_timeout:
            log.warning("time limits are enforced for turns only", task_id=correlation_id)
        told = self._posting(options["callback"]), self._posting(options["accept_callback"])
        failed = self._posting(options["error_callback"])

        def execute() -> None:
            with self._places:
                self._places.wait_for(lambda: self._taken < self.limit)
                self._taken += 1
            try:
                apply_target(target, args, kwargs, *told, propagate=BaseException)
            except BaseException as error:  # the result backend is down, or the task called sys.exit()
                log.warning(
                    "a task other than a turn did not complete", task_id=correlation_id, error=summary(error)
                )
                failed(ExceptionInfo())
            finally:
                with self._places:
                    self._taken -= 1
                    self._places.notify()

        threading.Thread(target=execute, name=f"task {correlation_id}", daemon=True).start()

    def _posting(self, callback: Callable[..., object]) -> Callable[..., None]:
        """Return `callback` deferred to Celery's thread, which acknowledges messages where it reads them."""
        post = type(self).post
        return lambda *args, **kwargs: post(partial(callback, *args, **kwargs))

    def on_start(self) -> None:
        """Set the limit when the worker starts."""
        self.turns.resize(self.limit)

    def on_stop(self) -> None:
        """Stop the pool. On a second Ctrl-C, called in a signal handler, and may interrupt the first call."""
        if state.should_terminate:
            self.turns.drain()
        self.turns.finish()

    def grow(self, n: int = 1) -> None:
        """Allow more turns, for `pool_grow` and autoscaling."""
        self.limit += n
        with self._places:
            self._places.notify_all()
        self.turns.resize(self.limit)

    def shrink(self, n: int = 1) -> None:
        """Allow fewer turns. Running turns continue."""
        self.limit = max(self.limit - n, 0)
        self.turns.resize(self.limit)

    @property
    def info(self) -> dict[str, Any]:
        """Return what `inspect stats` shows."""
        return {**super().info, "turns": self.turns.running}


class TurnAutoscaler(Autoscaler):  # type: ignore[misc]  # as above
    """Sizes the pool by running turns; while all its places are taken, more may wait in the ledger."""

    @property
    def qty(self) -> int:
        """Return how many places seem to be needed."""
        running: int = self.pool.turns.running
        return 2 * running if running >= self.processes else running


def pool_of(turns: Turns, post: Callable[[Callable[[], object]], None]) -> type[TurnPool]:
    """Return the pool of a worker with these turns; `post` schedules a call on the thread of Celery's loop."""
    return type("TurnPool", (TurnPool,), {"turns": turns, "post": post, "__module__": TurnPool.__module__})
