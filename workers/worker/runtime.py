"""State of one worker process: the event loop that carries all streams, and the running turns.

Celery's thread receives messages; the work happens on one asyncio loop, with one coroutine per turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar

import structlog

from adapters.protocol.result import TurnResult
from ops.errors import LedgerUnavailable
from ops.ledger import Claim
from remote.daemon_threads import DaemonExecutor
from workers.context import WorkerContext
from workers.live.messages import Reply, Said
from workers.maintenance.host_cleanup import keep_tidy
from workers.maintenance.retention import keep_forgetting
from workers.maintenance.transcripts import TranscriptArchiver
from workers.tasks.waiting import WaitingTasks
from workers.turn.run import Left, RunOutcome, RunTurn
from workers.worker.admission import Admission, Arrival, Outcome, cancel_stamped, cancel_tasks
from workers.worker.claims import ClaimKeeper
from workers.worker.loop_lag import LoopLag
from workers.worker.scheduler import Scheduler

_THREADS = 8  # for calls to the ledger
_CLOSE_S = 2.5  # for everything; a worker has 5 s to exit, and Celery needs part of that

T = TypeVar("T")
log = structlog.get_logger(__name__)


class Runtime:
    """Context manager around Celery's worker. All methods may be called from any thread."""

    def __init__(
        self,
        context: WorkerContext,
        tasks: WaitingTasks,
        claim_keeper: ClaimKeeper,
        beat: LoopLag,
        *,
        finishes: bool = False,
    ) -> None:
        """`finishes`: when stopped, wait for running turns instead of leaving them to the next worker."""
        self._context = context
        self._tasks = tasks
        self._claim_keeper = claim_keeper
        self._beat = beat
        self.finishes = finishes
        self._room = 0
        self._left: list[Claim] = []
        self._closing = threading.Lock()
        self._closed = False
        self._idle = threading.Event()
        self._idle.set()
        self._loop = asyncio.new_event_loop()
        self._loop.set_default_executor(DaemonExecutor(_THREADS, "ledger"))
        self._thread = threading.Thread(target=self._loop.run_forever, name="turns", daemon=True)
        self._runs: set[RunTurn] = set()
        self._admission = Admission(context, self._nudge, tasks.give)
        self._scheduler = Scheduler(context, claim_keeper.owner, self)
        self._archivist = TranscriptArchiver(context, context.archive) if context.archive else None

    def __enter__(self) -> Self:
        self._claim_keeper.start()
        self._thread.start()
        self._on_loop(self._beat.run())
        self._on_loop(keep_tidy(self._context))
        self._on_loop(keep_forgetting(self._context))
        if self._archivist:
            self._on_loop(self._archivist.run())
        self._scheduling = self._on_loop(self._scheduler.run())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Shut down within seconds, without waiting for an unresponsive ledger or host. Safe to repeat."""
        with self._closing:
            if not self._closed:
                self._closed = True
                self._close(_Countdown(_CLOSE_S))

    def _close(self, countdown: _Countdown) -> None:
        self.drain()
        with contextlib.suppress(TimeoutError):
            self._scheduling.result(countdown.left_s / 3)  # leave time for the rest
        self._idle.wait(countdown.left_s / 2)
        self._bounded(self._release(), countdown)
        self._tasks.close(countdown.left_s / 2)
        self._claim_keeper.stop(countdown.left_s)
        self._context.event_writer.close(countdown.left_s)
        self._bounded(self._context.hosts.close(), countdown)
        self._bounded(_cancel_all(), countdown)
        if self._context.tracing:
            self._context.tracing.close(countdown.left_s)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(countdown.left_s)

    def stop(self) -> None:
        """Stop the worker; safe in a signal handler."""
        if self.finishes:
            self._loop.call_soon_threadsafe(self._scheduler.leave)
        else:
            self.drain()

    def drain(self) -> None:
        """Leave all running turns to the next worker, even if `finishes`; safe in a signal handler."""
        self._loop.call_soon_threadsafe(self._leave)

    def finish(self) -> None:
        """Wait, once Celery has stopped, until all turns have finished or been left; only if `finishes`."""
        if self.finishes:
            self._idle.wait()

    def admit(self, arrival: Arrival, done: Callable[[Outcome], None]) -> None:
        """Record what a message asks for, then call `done` with what to do with the message."""
        self._on_loop(self._admit(arrival, done))

    def revoke(self, task_ids: Iterable[str], *, running: bool) -> None:
        """Cancel the turns of these tasks."""
        self._on_loop(cancel_tasks(self._context, list(task_ids), running=running))

    def revoke_stamped(self, stamps: Mapping[str, object], *, running: bool) -> None:
        """Cancel the turns of tasks with any of these stamps."""
        self._on_loop(cancel_stamped(self._context, stamps, running=running))

    def hear(self, said: Said) -> Reply | None:
        """Pass a producer's message to a turn; return the immediate reply, or None if the agent is not here."""
        run = self._claim_keeper.run_of(said.turn_id)
        reply = run.reply(said) if run is not None else None
        if run is not None and reply is not None and reply.refused is None and reply.outcome is None:
            self._loop.call_soon_threadsafe(run.hear, said)
        return reply

    def resize(self, room: int) -> None:
        """Set how many turns may run at a time."""
        self._room = room
        self._loop.call_soon_threadsafe(self._scheduler.nudge)

    @property
    def running(self) -> int:
        """Return how many turns are running."""
        return len(self._runs)

    @property
    def slots(self) -> int:
        """Return how many turns may run at a time."""
        return self._room

    @property
    def leaving(self) -> bool:
        """Return whether the worker has stopped taking turns."""
        return self._scheduler.leaving

    def room(self) -> int:
        """Return how many more turns may run."""
        return self._room - self.running

    def start(self, claim: Claim, asked_at: float) -> asyncio.Event:
        """Run a turn; return an event that is set once it has taken its slot, or needs none."""
        run = RunTurn(self._context, claim, asked_at)
        self._idle.clear()
        self._runs.add(run)
        self._claim_keeper.keep(run)
        try:
            self._tasks.start(run, lambda: self._on_loop(self._drive(run)))
        except RuntimeError:  # out of threads: the claim expires, and the turn is claimed again
            log.exception("a turn could not be started", turn_id=claim.turn_id)
            self._ended(run)
        return run.begun

    def _nudge(self) -> None:
        self._scheduler.nudge()

    def _ended(self, run: RunTurn) -> None:
        """Drop a turn that no longer runs here."""
        run.begun.set()
        self._claim_keeper.drop(run)
        self._runs.discard(run)
        if not self._runs:
            self._idle.set()
        self._nudge()

    async def _admit(self, arrival: Arrival, done: Callable[[Outcome], None]) -> None:
        done(await self._admission.admit(arrival))

    async def _drive(self, run: RunTurn) -> RunOutcome:
        """Do the work of a turn's task; the body of `runturn.run_turn` waits for it."""
        metrics, claim = self._context.metrics, run.claim
        waited_s = None if claim.ready_at is None else max(0.0, self._context.clock() - claim.ready_at)
        try:
            metrics.turn_claimed(claim.turn_id, waited_s)
            outcome = await run.drive()
        finally:
            metrics.turn_let_go()
            self._ended(run)
        if isinstance(outcome, TurnResult) and self._archivist:
            self._archivist.settled(outcome.turn_id)
        elif isinstance(outcome, Left):
            self._left.append(claim)
        return outcome

    def _leave(self) -> None:
        self._scheduler.leave()
        self._admission.leave()
        self._claim_keeper.leave_all()

    async def _release(self) -> None:
        """Release the claims of turns left, or not left in time, so that other workers get them at once."""
        claims = [*self._left, *self._claim_keeper.claims]
        if claims:
            try:
                await asyncio.to_thread(self._context.ledger.queue.release, claims, self._context.clock())
            except LedgerUnavailable as error:
                log.warning(
                    "the claims of unfinished turns could not be released; they will expire on their own",
                    error=str(error),
                )

    def _bounded(self, work: Coroutine[Any, Any, None], countdown: _Countdown) -> None:
        with contextlib.suppress(TimeoutError):
            self._on_loop(work).result(countdown.left_s)

    def _on_loop(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)


class _Countdown:
    """Time left of a given number of seconds."""

    def __init__(self, seconds: float) -> None:
        self._ends = time.monotonic() + seconds

    @property
    def left_s(self) -> float:
        """Return the seconds left, but at least a moment, so that ready work completes."""
        return max(self._ends - time.monotonic(), 0.05)


async def _cancel_all() -> None:
    """Cancel everything else on this loop."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
