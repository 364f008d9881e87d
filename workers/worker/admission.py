"""Brings turns that were asked for into the ledger. From then on, their messages are not needed any more."""

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
from ops.ledger import Asked, AskedSession, Busy
from workers.app import SESSION_TASK, TASK
from workers.context import WorkerContext
from workers.ledger_calls import LedgerCalls, WorkerStopping
from workers.results import refused
from workers.tasks.kept_message import stamps_of
from workers.worker.remote_control import has_any

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Arrival:
    """What a message asks for."""

    task_id: str
    document: object
    fault: InvalidRequest | None = None  # why the document cannot be run, if that is known by now
    task: str = TASK
    due_at: float | None = None  # Unix time in seconds; None: now
    expires_at: float | None = None  # Unix time in seconds; the turn is not to begin after that
    timeout_ms: int | None = None  # Celery's time limit for the task
    priority: int = 0  # of the message, which a request's own beats
    revoked: bool = False
    traceparent: str | None = None  # of the message, which a request's own beats
    follows: str = ""  # a digest of what is to follow on the task, see `workers.tasks.kept_message`
    message: str | None = None  # what Celery needs to execute the task, see there


@dataclass(frozen=True, slots=True)
class Admitted:
    """The ledger has it: the message can be acknowledged."""


@dataclass(frozen=True, slots=True)
class LeftAlone:
    """The worker has to leave: the message is the next one's."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """This runturn can make nothing of it, but another one may: the message has to be put aside."""

    reason: str


Outcome = Admitted | LeftAlone | Unreadable
Recorded = Asked | AskedSession | Busy


class Admission:
    """All methods are to be called on the loop."""

    def __init__(
        self, context: WorkerContext, admitted: Callable[[], None], answer: Callable[[str], None]
    ) -> None:
        """`admitted` is called for turns that wait to be taken, `answer` for those that have their result."""
        self._context = context
        self._admitted = admitted
        self._answer = answer
        self._ledger_call = LedgerCalls()

    def leave(self) -> None:
        """Give up what the ledger does not answer to."""
        self._ledger_call.leave()

    async def admit(self, arrival: Arrival) -> Outcome:
        """Record what a message asks for."""
        try:
            return await self._admit(arrival)
        except WorkerStopping:
            return LeftAlone()
        except Exception as error:
            log.exception("a message could not be dealt with", task_id=arrival.task_id)
            return Unreadable(f"it could not be dealt with ({type(error).__name__}): see the worker's log")

    async def _admit(self, arrival: Arrival) -> Outcome:
        version = arrival.document.get("version", 1) if isinstance(arrival.document, Mapping) else 1
        if version != 1 and isinstance(version, int):
            return Unreadable(f"version {version} of the request is not known here: upgrade the workers")
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
        """Have the ledger record what a message asks for: a turn, or a session of turns, called `asked`."""
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
        """A turn's request with what its message and the operator say in the place of what it leaves out."""
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
        """Answer a request that cannot be run; it is on record all the same."""
        given: Mapping[str, object] = arrival.document if isinstance(arrival.document, Mapping) else {}
        turn_id = _given_id(arrival, "turn_id", TURN_ID)
        agent = str(given.get("agent"))
        # It becomes a label of metrics.
        known = agent if agent in (AUTO, *self._context.registry.names) else "unknown"
        result = refused(turn_id, error)
        recorded = await self._record(arrival, turn_id, self._context.ledger.queue.refuse, turn_id, known, result)
        if isinstance(recorded, Busy):
            log.warning("a faulty copy of a turn was dropped", turn_id=turn_id, error=str(error))
        elif not recorded.again:
            self._context.metrics.turn_refused(turn_id, known)


def _when(arrival: Arrival) -> dict[str, object]:
    """When the turn may begin, if at all."""
    return {"due_at": arrival.due_at, "expires_at": arrival.expires_at, "revoked": arrival.revoked}


def _given_id(arrival: Arrival, field: str, pattern: str) -> str:
    """What a faulty request calls itself, or else its task's id."""
    given = arrival.document.get(field) if isinstance(arrival.document, Mapping) else None
    return given if isinstance(given, str) and re.fullmatch(pattern, given) else arrival.task_id


async def cancel_tasks(context: WorkerContext, task_ids: Iterable[str], *, running: bool) -> None:
    """Have the turns of these Celery tasks cancelled, those that are `running` only if so asked."""
    ledger = context.ledger

    def cancel(task_id: str) -> None:
        # Without a task there is no turn yet: its message is on its way, and finds itself revoked.
        with contextlib.suppress(UnknownTurn):
            asked, now = ledger.waiters.turn_of(task_id) or task_id, context.clock()
            if ledger.session_runs.cancel(asked, now, running=running) is None:
                ledger.queue.cancel(asked, now, running=running)

    for task_id in task_ids:
        try:
            await asyncio.to_thread(cancel, task_id)
        except LedgerUnavailable as error:
            log.warning("a revoked task was not cancelled: repeat it", task_id=task_id, error=str(error))


async def cancel_stamped(context: WorkerContext, stamps: Mapping[str, object], *, running: bool) -> None:
    """Have the turns cancelled whose tasks have any of these stamps; see `cancel_tasks`."""
    try:
        messages = await asyncio.to_thread(context.ledger.waiters.stamped_messages)
    except LedgerUnavailable as error:
        log.warning("tasks that were revoked by stamps were not cancelled: repeat it", error=str(error))
        return
    wanted = [task_id for task_id, message in messages.items() if has_any(stamps_of(message), stamps)]
    await cancel_tasks(context, wanted, running=running)
