"""Everything one worker process has: the loop that carries all streams, and the turns in hand.

Celery's threads call `execute`, one call a message; the work itself happens on one asyncio loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

import structlog

from adapters.errors import InvalidRequest
from adapters.request import TURN_ID, TurnRequest
from adapters.result import TurnResult
from ops.errors import LedgerUnavailable
from ops.ledger import Busy, Claim, NotDue, Settled
from workers.answers import Answers
from workers.conclusion import Parked
from workers.equipment import Equipment
from workers.errors import AnswersUnavailable
from workers.fencing import OWNER_TTL_S
from workers.keeper import Keeper
from workers.outcome import refused
from workers.run import Left, Lost, RunOutcome, TurnRun
from workers.tidying import keep_tidy

_LEDGER_RETRY_S = 1.0
_CLOSE_S = 2.0  # for all connections to hosts

P = ParamSpec("P")
T = TypeVar("T")
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Joined:
    """Another delivery of the same turn is being worked on, or the turn is parked; its result answers this one."""


Outcome = TurnResult | Parked | Joined | Left


class Runtime:
    """Use as a context manager around Celery's worker. `execute` may be called from any thread."""

    def __init__(self, equipment: Equipment, answers: Answers, keeper: Keeper) -> None:
        self._equipment = equipment
        self._answers = answers
        self._keeper = keeper
        self._draining = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="turns", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._keeper.start()
        self._tidying = asyncio.run_coroutine_threadsafe(keep_tidy(self._equipment), self._loop)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.drain()
        self._tidying.cancel()
        self._keeper.stop()
        self._equipment.pump.close()
        self._close_hosts()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5)

    def _close_hosts(self) -> None:
        closing = asyncio.run_coroutine_threadsafe(self._equipment.hosts.close(), self._loop)
        with contextlib.suppress(TimeoutError):
            closing.result(_CLOSE_S)

    def drain(self) -> None:
        """Leave all running turns to the next worker; safe in a signal handler."""
        self._draining.set()
        self._loop.call_soon_threadsafe(self._keeper.leave_all)

    def execute(self, task_id: str, document: object) -> Outcome:
        """Do what one message asks for. After a fault of ours, the turn comes back later, perhaps elsewhere."""
        try:
            return self._execute(task_id, document)
        except Exception:
            turn_id = str(document.get("turn_id", task_id) if isinstance(document, Mapping) else task_id)
            log.exception("a message could not be dealt with", turn_id=turn_id, task_id=task_id)
            return self._postpone(turn_id)

    def _postpone(self, turn_id: str) -> Outcome:
        """Give up a message, and not its turn."""
        postponed = self._patiently(self._equipment.ledger.postpone, turn_id, self._equipment.clock())
        return Left() if postponed is None else Joined()

    def _execute(self, task_id: str, document: object) -> Outcome:
        self._answers.started(task_id)
        try:
            request = self._parse(task_id, document)
        except InvalidRequest as error:
            return self._refuse(task_id, document, error)
        ledger, clock = self._equipment.ledger, self._equipment.clock
        if self._patiently(ledger.submit, request, clock()) is None:
            return Left()
        self._patiently(self._answers.note, request.turn_id, task_id)
        return self._claim_and_run(request.turn_id, task_id)

    def _claim_and_run(self, turn_id: str, task_id: str) -> Outcome:
        if self._draining.is_set():
            return Left()
        equipment = self._equipment
        asked_at = equipment.monotonic()
        claim = self._patiently(
            equipment.ledger.claim, turn_id, self._keeper.owner, equipment.clock(), OWNER_TTL_S
        )
        match claim:
            case Settled(result):
                return self._answer(result, task_id)
            case Busy() | NotDue():
                return Joined()
            case Claim():
                return self._finish(self._run(TurnRun(equipment, claim, asked_at)), task_id)
            case None:
                return Left()

    def _run(self, run: TurnRun) -> RunOutcome:
        metrics = self._equipment.metrics
        metrics.turn_claimed()
        try:
            return self._on_loop(self._keeper.work(run))
        finally:
            metrics.turn_let_go()

    def _finish(self, outcome: RunOutcome, task_id: str) -> Outcome:
        if isinstance(outcome, Lost):
            return Joined()
        return self._answer(outcome, task_id) if isinstance(outcome, TurnResult) else outcome

    def _answer(self, result: TurnResult, task_id: str) -> Outcome:
        """Answer everybody who waits for a settled turn. Its message stays with the broker until that is done."""
        answered = self._patiently(self._answers.give, result, task_id)
        return Left() if answered is None else result

    def _parse(self, task_id: str, document: object) -> TurnRequest:
        if isinstance(document, Mapping) and "agent" not in document:
            document = {**document, "agent": self._equipment.settings.agent.kind}
        return TurnRequest.parse(document, turn_id=task_id)

    def _refuse(self, task_id: str, document: object, error: InvalidRequest) -> Outcome:
        """Answer a request that cannot be run; it is on record all the same."""
        given: Mapping[str, object] = document if isinstance(document, Mapping) else {}
        turn_id = str(given.get("turn_id", task_id))
        if re.fullmatch(TURN_ID, turn_id) is None:
            turn_id = task_id
        agent = str(given.get("agent"))
        known = agent if agent in self._equipment.registry.names else "unknown"  # it becomes a label of metrics
        result = refused(turn_id, error)
        now = self._equipment.clock()
        settled = self._patiently(self._equipment.ledger.refuse, turn_id, known, result, now)
        match settled:
            case Settled(stored):
                return self._answer(stored, task_id)
            case Busy():
                # A valid request of that id is under way, or queued by a newer runturn whose message this was.
                self._postpone(turn_id)
                return result
            case None:
                return Left()

    def _patiently(self, operation: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """Call ledger or result backend until they answer; None when the worker has to leave meanwhile."""
        while True:
            try:
                return operation(*args, **kwargs)
            except (LedgerUnavailable, AnswersUnavailable) as error:
                log.warning("ledger or result backend do not answer", error=str(error))
            if self._draining.wait(_LEDGER_RETRY_S):
                return None

    def _on_loop(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()
