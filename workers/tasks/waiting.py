"""The tasks that wait for turns: executed while the turn runs here, or told its result when it has ended.

A turn may be asked for several times, under several task ids. The ledger notes which tasks have yet to be told.
What a killed worker, or a result backend that was away, has left undone, any worker finds there.
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

_ORDERLY_S = 1.0  # a turn waits no longer for a result backend that hangs
_THREADS = 4  # that tell of turns that have ended: a slow result backend must hold up nothing else
_MOST = 64  # tasks of turns that have just ended, in their own threads: one that hangs is to hold no more
_PAUSE_S = (15.0, 300.0)  # from one try to tell a task to the next: half of the time that it has waited

log = structlog.get_logger(__name__)


class WaitingTasks:
    """Safe for threads."""

    def __init__(
        self,
        executor: TaskExecutor,
        ledger: Ledger,
        clock: Callable[[], float] = time.time,
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
        self._held: set[Waiter] = set()  # tasks whose turns have ended, and that are told here just now

    def start(self, run: RunTurn, drive: Callable[[], Future[RunOutcome]]) -> None:
        """Have a turn's task executed in a thread of its own; its body has `drive` work on the turn."""
        name = f"turn {run.claim.turn_id}"
        threading.Thread(target=self._execute, args=(run, drive), name=name, daemon=True).start()

    def give(self, asked: str) -> None:
        """Have all tasks of a turn, or of a session of turns, told if it has ended; returns at once."""
        if asked not in self._queued:
            self._queued.add(asked)
            telling = self._telling.submit(self._give, asked)
            self._pending.add(telling)
            telling.add_done_callback(self._pending.discard)

    def give_late(self, now: float) -> None:
        """Have the tasks told that nobody tells, though they could be. Raises LedgerUnavailable."""
        if held := list(self._held):
            self._ledger.waiters.renew(held, now)
        for asked in self._ledger.waiters.unanswered(now):
            self.give(asked)

    def close(self, within_s: float) -> None:
        """Wait until all are told that are to be told now, but no longer: the ledger knows of the others."""
        ends = time.monotonic() + within_s
        for thread in list(self._threads):
            thread.join(max(0.0, ends - time.monotonic()))
        wait(list(self._pending), max(0.0, ends - time.monotonic()))

    def _execute(self, run: RunTurn, drive: Callable[[], Future[RunOutcome]]) -> None:
        """Have a turn's task executed in this thread."""
        self._follow_on(threading.current_thread())
        claim = run.claim
        waiter = claim.waiter or unasked(claim)
        became: list[Outcome] = []

        def work() -> Outcome:
            became.append(self._driven(claim, run.placed, drive()))
            if isinstance(became[0], Result):
                if len(self._held) >= _MOST:
                    raise Undelivered("many turns have ended at once")
                self._held.add(waiter)
            return became[0]

        try:
            executed = self._executor.execute(waiter, work, claim.request, headers=self._headers(claim))
            if not became:  # its task could not be executed
                became.append(self._driven(claim, run.placed, drive()))
            if isinstance(became[0], Result):
                self._note_end(claim, waiter, executed)
        except LedgerUnavailable as error:
            log.warning("a turn's tasks are told later", turn_id=claim.turn_id, error=str(error))
        finally:
            self._held.discard(waiter)
            self._threads.discard(threading.current_thread())

    def _note_end(self, claim: Claim, waiter: Waiter, executed: Execution) -> None:
        """Note whether the task of a turn was told that it has ended, and have the others told that wait."""
        others = True
        if claim.waiter is None:
            pass  # somebody may have asked for it meanwhile
        elif waiter in self._held:
            others = self._note(waiter, executed)
        else:
            self._ledger.waiters.put_off(waiter, self._clock(), executed.sent)
        if others:
            self.give(claim.turn_id)
        if claim.session_run is not None:
            self.give(claim.session_run)

    def _follow_on(self, thread: threading.Thread) -> None:
        """Let the last execution of the same task tell that the turn was parked: signals are to come in order."""
        before = [each for each in list(self._threads) if each.name == thread.name]
        self._threads.add(thread)
        for each in before:
            each.join(_ORDERLY_S)

    def _headers(self, claim: Claim) -> dict[str, object]:
        """Return what the message of a turn's task could not say."""
        headers: dict[str, object] = {"retries": sum(each is not claim.open for each in claim.attempts)}
        parent = parent_of_task(self._tracing, claim)
        return headers if parent is None else {**headers, "traceparent": parent}

    def _driven(self, claim: Claim, placed: Future[Attempt | None], driven: Future[RunOutcome]) -> Outcome:
        """Show where a turn runs, once that is known, and wait for what becomes of it."""
        known: list[Future[Any]] = [placed, driven]
        wait(known, return_when=FIRST_COMPLETED)
        try:
            if placed.done() and (attempt := placed.result()) is not None:
                self._show(claim, attempt)
            outcome = driven.result()
        except CancelledError:  # the worker has left
            return None
        except Exception:
            log.exception("a turn could not be worked on", turn_id=claim.turn_id)
            return None
        return outcome if isinstance(outcome, Result | Parked) else None

    def _show(self, claim: Claim, attempt: Attempt) -> None:
        """Have the tasks that wait for a turn, or for its session, show where it runs."""
        where = {"host": attempt.host, "attempt": attempt.attempt}
        if claim.waiter is not None:
            self._executor.started(claim.waiter, where)
        try:
            for waiter in self._ledger.waiters.of(claim.session_run) if claim.session_run is not None else ():
                self._executor.started(waiter, {"turn": claim.turn_id, **where})
        except LedgerUnavailable as error:
            log.warning("a session's tasks do not show its turn", session_id=claim.session_run, error=str(error))

    def _give(self, asked: str) -> None:
        self._queued.discard(asked)  # first of all: who comes from now on is looked for again
        try:
            session = self._ledger.session_runs.find(asked)
            result = session.result if session is not None else self._ledger.reports.result(asked)
            if result is None:
                return
            for waiter in self._ledger.waiters.of(asked):
                leased = self._ledger.waiters.lease(waiter, self._clock())
                if leased is not None:
                    self._tell(leased, result)
        except LedgerUnavailable as error:
            log.warning("a turn's tasks are told later", turn_id=asked, error=str(error))
        except Exception:
            log.exception("a turn's tasks could not be told", turn_id=asked)

    def _tell(self, waiter: Waiter, result: Result) -> None:
        """Have a task executed whose turn has ended. Raises LedgerUnavailable."""
        self._held.add(waiter)
        try:
            executed = self._executor.execute(waiter, lambda: result)
            self._note(waiter, executed)
        finally:
            self._held.discard(waiter)

    def _note(self, waiter: Waiter, executed: Execution) -> bool:
        """Note that a task was told, or when it is to be told again; returns whether others wait for its turn."""
        if executed.done:
            return self._ledger.waiters.told(waiter)
        now = self._clock()
        waited_s = 0.0 if waiter.since is None else now - waiter.since
        self._ledger.waiters.put_off(waiter, now + min(max(waited_s / 2, _PAUSE_S[0]), _PAUSE_S[1]), executed.sent)
        return True
