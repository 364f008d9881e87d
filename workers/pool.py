"""Celery's pool: turns are coroutines, so it only says how many there may be, and ends one on demand."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

from celery import signals
from celery.concurrency.thread import TaskPool
from celery.worker.autoscale import Autoscaler


class Turns(Protocol):
    """The turns of a worker."""

    def resize(self, room: int) -> None:
        """From now on, there may be so many at a time."""
        ...

    def terminate(self, number: int) -> None:
        """End the one that Celery calls by this number."""
        ...

    def numbers(self) -> list[int]:
        """The numbers of those that run."""
        ...

    def finish(self) -> None:
        """The worker stops: wait for its turns, if it is to do so."""
        ...


class TurnPool(TaskPool):  # type: ignore[misc]  # Celery has no types
    """Celery's threads, for whatever other tasks a worker is given, and the limit of its turns."""

    turns: ClassVar[Turns]
    limit: int

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # Set-ups of instrumentations wait for it. Celery's threads do not send it, but tasks are executed here.
        signals.worker_process_init.send(sender=None)

    def on_start(self) -> None:
        """The worker starts."""
        self.turns.resize(self.limit)

    def on_stop(self) -> None:
        """The worker stops."""
        self.turns.finish()
        super().on_stop()

    def grow(self, n: int = 1) -> None:
        """Allow more turns, as `pool_grow` and autoscaling ask for."""
        self.limit += n
        self.turns.resize(self.limit)

    def shrink(self, n: int = 1) -> None:
        """Allow fewer turns. Those that run go on."""
        self.limit = max(self.limit - n, 0)
        self.turns.resize(self.limit)

    def terminate_job(self, pid: int, signal: int | None = None) -> None:
        """End a turn, as `revoke(terminate=True)` asks for; the agent's own ladder of signals does it."""
        self.turns.terminate(pid)

    def _get_info(self) -> dict[str, Any]:
        numbers = self.turns.numbers()
        return {**super()._get_info(), "turns": len(numbers), "processes": numbers}


class TurnAutoscaler(Autoscaler):  # type: ignore[misc]  # as above
    """Sizes the pool by the turns that run; while all its places are taken, more may wait in the ledger."""

    @property
    def qty(self) -> int:
        """How many places seem to be wanted."""
        running = len(self.pool.turns.numbers())
        return 2 * running if running >= self.processes else running
