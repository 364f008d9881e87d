"""The tasks that wait for turns: executed while the turn runs here, or answered once it has finished.

A turn may be requested several times, under several task ids. The ledger records which tasks are still to be
answered. There, any worker finds what a killed worker or an unavailable result backend has left undone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from typing import Any

import structlog

from ops.errors import LedgerUnavailable
from ops.ledger import Attempt, Claim, Ledger, Waiter
from ops.tracing import Tracing, parent_of_task
from remote.daemon_threads import DaemonExecutor
from workers.errors import Undelivered
from workers.tasks.delivery import Execution, Outcome, Result
from workers.tasks.execution import TaskExecutor
from workers.tasks.kept_message import unasked
from workers.turn.run import RunOutcome, RunTurn
from workers.turn.settlement import Parked

_ORDERLY_S = 1.0  # a turn's longest wait for a hung result backend
_THREADS = 4  # to answer tasks of finished turns: a slow result backend must not block anything else
_MOST = 64  # tasks of just-finished turns in their own threads: a hung backend must not tie up more
_PAUSE_S = (15.0, 300.0)  # bounds of the delay before a task is answered again: half the time it has waited

log = structlog.get_logger(__name__)


class WaitingTasks:
    """The tasks that wait for turns; thread-safe."""

    def __init__(
        self,
        executor: TaskExecutor,
        ledger: Ledger,
        clock: Callable[[], float],
        tracing: Tracing | None = None,
    ) -> None:
        self._executor = executor
        self._ledger = ledger
        self._clock = clock
        self._tracing = tracing
        self._telling = DaemonExecutor(_THREADS, "telling")
        self._queued: set[str] = set()  # turns, and sessions of turns
        self._pending: set[Future[None]] = set()
        self._threads: set[threading.Thread] = set()
        self._held: set[Waiter] = set()  # tasks of finished turns that are being answered here

    def start(self, run: RunTurn, drive: Callable[[], Future[RunOutcome]]) -> None:
        """Execute a turn's task in a new thread; the body calls `drive` to run the turn."""
        name = f"turn {run.claim.turn_id}"
        threading.Thread(target=self._execute, args=(run, drive), name=name, daemon=True).start()

    def give(self, asked: str) -> None:
        """Answer all tasks of a turn or session of turns if it has finished; returns at once."""
        if asked not in self._queued:
            self._queued.add(asked)
            telling = self._telling.submit(self._give, asked)
            self._pending.add(telling)
            telling.add_done_callback(self._pending.discard)

    def give_late(self, now: float) -> None:
        """Answer overdue tasks that no worker is answering. Raises LedgerUnavailable."""
        if held := list(self._held):
            self._ledger.waiters.renew(held, now)
        if self._ledger.clock.settled:  # otherwise, another worker's leases may only look expired
            for asked in self._ledger.waiters.unanswered(now):
                self.give(asked)

    def close(self, within_s: float) -> None:
        """Wait at most `within_s` for answers in progress; the ledger keeps the others."""
        ends = time.monotonic() + within_s
        for thread in list(self._threads):
            thread.join(max(0.0, ends - time.monotonic()))
        wait(list(self._pending), max(0.0, ends - time.monotonic()))

    def _execute(self, run: RunTurn, drive: Callable[[], Future[RunOutcome]]) -> None:
        """Execute a turn's task in this thread."""
        self._follow_on(threading.current_thread())
        claim = run.claim
        waiter = claim.waiter or unasked(claim)
        became: list[Outcome] = []

        def work() -> Outcome:
            became.append(self._driven(claim, run.placed, drive()))
            if isinstance(became[0], Result):
                if len(self._held) >= _MOST:
                    raise Undelivered("too many turns finished at once")
                self._held.add(waiter)
            return became[0]

        try:
            executed = self._executor.execute(waiter, work, claim.request, headers=self._headers(claim))
            if not became:  # its task could not be executed
                became.append(self._driven(claim, run.placed, drive()))
            if isinstance(became[0], Result):
                self._note_end(claim, waiter, executed)
        except LedgerUnavailable as error:
            log.warning("a turn's tasks will be answered later", turn_id=claim.turn_id, error=str(error))
        finally:
            self._held.discard(waiter)
            self._threads.discard(threading.current_thread())

    def _note_end(self, claim: Claim, waiter: Waiter, executed: Execution) -> None:
        """Record whether a turn's task was answered, and answer the others that wait."""
        others = True
        if claim.waiter is None:
            pass  # a task may have asked for it since
        elif waiter in self._held:
            others = self._note(waiter, executed)
        else:
            self._ledger.waiters.put_off(waiter, self._clock(), executed.sent)
        if others:
            self.give(claim.turn_id)
        if claim.session_run is not None:
            self.give(claim.session_run)

    def _follow_on(self, thread: threading.Thread) -> None:
        """Let the task's previous execution report first that the turn was parked, to keep signals in order."""
        before = [each for each in list(self._threads) if each.name == thread.name]
        self._threads.add(thread)
        for each in before:
            each.join(_ORDERLY_S)

    def _headers(self, claim: Claim) -> dict[str, object]:
        """Return headers that the message of a turn's task could not have."""
        headers: dict[str, object] = {"retries": sum(each is not claim.open for each in claim.attempts)}
        parent = parent_of_task(self._tracing, claim)
        return headers if parent is None else {**headers, "traceparent": parent}

    def _driven(self, claim: Claim, placed: Future[Attempt | None], driven: Future[RunOutcome]) -> Outcome:
        """Show where a turn runs, once that is known, and wait for its outcome."""
        known: list[Future[Any]] = [placed, driven]
        wait(known, return_when=FIRST_COMPLETED)
        try:
            if placed.done() and (attempt := placed.result()) is not None:
                self._show(claim, attempt)
            outcome = driven.result()
        except CancelledError:  # the worker is shutting down
            return None
        except Exception:
            log.exception("running a turn failed", turn_id=claim.turn_id)
            return None
        return outcome if isinstance(outcome, Result | Parked) else None

    def _show(self, claim: Claim, attempt: Attempt) -> None:
        """Show where a turn runs in the tasks that wait for it or for its session."""
        where = {"host": attempt.host, "attempt": attempt.attempt}
        if claim.waiter is not None:
            self._executor.started(claim.waiter, where)
        try:
            for waiter in self._ledger.waiters.of(claim.session_run) if claim.session_run is not None else ():
                self._executor.started(waiter, {"turn": claim.turn_id, **where})
        except LedgerUnavailable as error:
            log.warning(
                "a session's tasks could not show where its turn runs",
                session_id=claim.session_run,
                error=str(error),
            )

    def _give(self, asked: str) -> None:
        self._queued.discard(asked)  # first: tasks that arrive from now on need another round
        try:
            session = self._ledger.session_runs.find(asked)
            result = session.result if session is not None else self._ledger.reports.result(asked)
            if result is None:
                return
            for waiter in self._ledger.waiters.of(asked):
                leased = self._ledger.waiters.lease(waiter, self._clock(), self._ledger.clock.trusted)
                if leased is not None:
                    self._tell(leased, result)
        except LedgerUnavailable as error:
            log.warning("a turn's tasks will be answered later", turn_id=asked, error=str(error))
        except Exception:
            log.exception("a turn's tasks could not be answered", turn_id=asked)

    def _tell(self, waiter: Waiter, result: Result) -> None:
        """Execute a task whose turn has finished. Raises LedgerUnavailable."""
        self._held.add(waiter)
        try:
            executed = self._executor.execute(waiter, lambda: result)
            self._note(waiter, executed)
        finally:
            self._held.discard(waiter)

    def _note(self, waiter: Waiter, executed: Execution) -> bool:
        """Record that a task was answered, or when to try again; return whether others wait for its turn."""
        if executed.done:
            return self._ledger.waiters.told(waiter)
        now = self._clock()
        waited_s = 0.0 if waiter.since is None else now - waiter.since
        self._ledger.waiters.put_off(waiter, now + min(max(waited_s / 2, _PAUSE_S[0]), _PAUSE_S[1]), executed.sent)
        return True
