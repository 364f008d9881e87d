"""Admission of requested turns to the ledger, after which their messages are no longer needed."""

from __future__ import annotations

import asyncio
import contextlib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog

from adapters.errors import InvalidRequest
from adapters.protocol.request import AUTO, TURN_ID, TurnRequest
from adapters.protocol.session_request import RUN_ID, SessionRequest
from adapters.protocol.session_result import SessionResult
from ops.errors import LedgerUnavailable, UnknownTurn
from ops.ledger import Asked, Busy
from workers.app import SESSION_TASK, TASK
from workers.context import WorkerContext
from workers.ledger_calls import LedgerCalls, WorkerStopping
from workers.results import refused
from workers.tasks.kept_message import stamps_of
from workers.worker.remote_control import has_any

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Arrival:
    """The request in a message."""

    task_id: str
    document: object
    fault: InvalidRequest | None = None  # why the document cannot be run, if already known
    task: str = TASK
    due_at: float | None = None  # Unix time in seconds; None: now
    expires_at: float | None = None  # Unix time in seconds; the turn must not start later
    timeout_ms: int | None = None  # Celery's time limit for the task
    priority: int = 0  # of the message; a request's own takes precedence
    revoked: bool = False
    traceparent: str | None = None  # of the message; a request's own takes precedence
    follows: str = ""  # a digest of what follows the task, see `workers.tasks.kept_message`
    message: str | None = None  # what Celery needs to execute the task, see there


@dataclass(frozen=True, slots=True)
class Admitted:
    """Outcome: the ledger has the turn; acknowledge the message."""


@dataclass(frozen=True, slots=True)
class LeftAlone:
    """Outcome: the worker is shutting down; leave the message to the next one."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Outcome: unreadable to this version of runturn, if not to others; put the message aside."""

    reason: str


Outcome = Admitted | LeftAlone | Unreadable
Recorded = Asked | Busy


class Admission:
    """Admission of messages to the ledger. Call all methods on the loop."""

    def __init__(
        self, context: WorkerContext, admitted: Callable[[], None], answer: Callable[[str], None]
    ) -> None:
        """`admitted` is called for turns that wait to be claimed, `answer` for those that have their result."""
        self._context = context
        self._admitted = admitted
        self._answer = answer
        self._ledger_call = LedgerCalls()

    def leave(self) -> None:
        """Give up calls that the ledger does not answer."""
        self._ledger_call.leave()

    async def admit(self, arrival: Arrival) -> Outcome:
        """Record what a message asks for."""
        try:
            return await self._admit(arrival)
        except WorkerStopping:
            return LeftAlone()
        except Exception as error:
            log.exception("a message could not be handled", task_id=arrival.task_id)
            return Unreadable(f"it could not be handled ({type(error).__name__}): see the worker's log")

    async def _admit(self, arrival: Arrival) -> Outcome:
        version = arrival.document.get("version", 1) if isinstance(arrival.document, Mapping) else 1
        if version != 1 and isinstance(version, int):
            return Unreadable(f"version {version} of the request is not supported: upgrade the workers")
        admit = self._admit_session if arrival.task == SESSION_TASK else self._admit_turn
        await admit(arrival)
        return Admitted()

    async def _admit_turn(self, arrival: Arrival) -> None:
        try:
            request = self._parse(arrival)
        except InvalidRequest as error:
            await self._refuse(arrival, error)
        else:
            await self._record(
                arrival, request.turn_id, self._context.ledger.queue.admit, request, **_when(arrival)
            )

    async def _admit_session(self, arrival: Arrival) -> None:
        ledger = self._context.ledger
        try:
            request = self._parse_session(arrival, self._context.clock())
        except InvalidRequest as error:
            refused = SessionResult.refused(_given_id(arrival, "run_id", RUN_ID), error)
            await self._record(arrival, refused.run_id, ledger.session_runs.refuse, refused)
        else:
            await self._record(arrival, request.run_id, ledger.session_runs.admit, request, **_when(arrival))

    async def _record(
        self, arrival: Arrival, asked: str, operation: Callable[..., Recorded], *what: object, **when: object
    ) -> Recorded:
        """Record in the ledger what a message asks for: the turn or session of turns `asked`."""
        recorded = await self._ledger_call(
            operation,
            *what,
            arrival.task_id,
            self._context.clock(),
            follows=arrival.follows,
            message=arrival.message,
            **when,
        )
        if isinstance(recorded, Busy):
            return recorded
        if recorded.again:
            self._context.metrics.delivered_again()
        if recorded.result is not None:
            self._answer(asked)
        else:
            self._admitted()
        return recorded

    def _parse_session(self, arrival: Arrival, now: float) -> SessionRequest:
        if arrival.fault is not None:
            raise arrival.fault
        document = arrival.document
        if isinstance(document, Mapping) and isinstance(document.get("turn"), Mapping):
            document = {**document, "turn": self._completed(document["turn"], arrival)}
        request = SessionRequest.parse(document, run_id=arrival.task_id)
        if arrival.timeout_ms is None:
            return request
        ends = min(request.deadline_at or math.inf, now + arrival.timeout_ms / 1000)
        return request.model_copy(update={"deadline": datetime.fromtimestamp(ends, UTC)})

    def _completed(self, document: Mapping[str, object], arrival: Arrival) -> Mapping[str, object]:
        """Return a turn's request, completed from its message and the operator's settings."""
        traced = {"traceparent": arrival.traceparent} if arrival.traceparent is not None else {}
        default = AUTO if document.get("needs") is not None else self._context.settings.agent.kind
        return {"agent": default, "priority": arrival.priority, **traced, **document}

    def _parse(self, arrival: Arrival) -> TurnRequest:
        if arrival.fault is not None:
            raise arrival.fault
        document = arrival.document
        if isinstance(document, Mapping):
            document = self._completed(document, arrival)
        request = TurnRequest.parse(document, turn_id=arrival.task_id)
        limits = [limit for limit in (request.turn_timeout_ms, arrival.timeout_ms) if limit is not None]
        return request.model_copy(update={"turn_timeout_ms": min(limits, default=None)})

    async def _refuse(self, arrival: Arrival, error: InvalidRequest) -> None:
        """Answer and record a request that cannot be run."""
        given: Mapping[str, object] = arrival.document if isinstance(arrival.document, Mapping) else {}
        turn_id = _given_id(arrival, "turn_id", TURN_ID)
        agent = str(given.get("agent"))
        # It becomes a metric label.
        known = agent if agent in (AUTO, *self._context.registry.names) else "unknown"
        result = refused(turn_id, error)
        recorded = await self._record(arrival, turn_id, self._context.ledger.queue.refuse, turn_id, known, result)
        if isinstance(recorded, Busy):
            log.warning("dropped a faulty copy of a turn", turn_id=turn_id, error=str(error))
        elif not recorded.again:
            self._context.metrics.turn_refused(turn_id, known)


def _when(arrival: Arrival) -> dict[str, object]:
    """Return when the turn may start, if at all."""
    return {"due_at": arrival.due_at, "expires_at": arrival.expires_at, "revoked": arrival.revoked}


def _given_id(arrival: Arrival, field: str, pattern: str) -> str:
    """Return the id that a faulty request gives itself, or else its task's id."""
    given = arrival.document.get(field) if isinstance(arrival.document, Mapping) else None
    return given if isinstance(given, str) and re.fullmatch(pattern, given) else arrival.task_id


async def cancel_tasks(context: WorkerContext, task_ids: Iterable[str], *, running: bool) -> None:
    """Cancel the turns of these Celery tasks; running ones only if `running`."""
    ledger = context.ledger

    def cancel(task_id: str) -> None:
        # Without a task there is no turn yet: its message is in transit, and is revoked on arrival.
        with contextlib.suppress(UnknownTurn):
            asked, now = ledger.waiters.turn_of(task_id) or task_id, context.clock()
            if ledger.session_runs.cancel(asked, now, running=running) is None:
                ledger.queue.cancel(asked, now, running=running)

    for task_id in task_ids:
        try:
            await asyncio.to_thread(cancel, task_id)
        except LedgerUnavailable as error:
            log.warning("a revoked task was not cancelled; revoke it again", task_id=task_id, error=str(error))


async def cancel_stamped(context: WorkerContext, stamps: Mapping[str, object], *, running: bool) -> None:
    """Cancel the turns of tasks with any of these stamps; see `cancel_tasks`."""
    try:
        messages = await asyncio.to_thread(context.ledger.waiters.stamped_messages)
    except LedgerUnavailable as error:
        log.warning("tasks revoked by stamps were not cancelled; revoke them again", error=str(error))
        return
    wanted = [task_id for task_id, message in messages.items() if has_any(stamps_of(message), stamps)]
    await cancel_tasks(context, wanted, running=running)
