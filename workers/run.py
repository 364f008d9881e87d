"""One claim of one turn: from the claim to its result, its parking, or the next worker."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import ParamSpec, TypeVar

import structlog

from adapters import errors
from adapters.command import Command
from adapters.contract import Adapter, Exit, Judgement, Session
from adapters.errors import Retry, TurnError
from adapters.request import TurnRequest
from adapters.result import TurnResult
from ops.errors import LedgerUnavailable, StaleClaim
from ops.ledger import Attempt, AttemptEnd, Claim, InUse
from ops.redaction import Redactor
from remote.errors import HostError, HostUnreachable
from remote.spool import Spool
from remote.upkeep import read_session_files, read_stderr_tail, remove_spool
from workers.attempt import AttemptRun, Detached, Ended
from workers.equipment import Equipment
from workers.faults import turn_error
from workers.lifecycle import TurnSettled
from workers.outcome import finished, refused
from workers.retry import RetryDecision

_LEDGER_RETRY_S = 1.0
_FAULT_PAUSE_S = 30.0  # below any sensible lease, so that the agent lives on

P = ParamSpec("P")
T = TypeVar("T")
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Parked:
    """The turn comes back later; the ledger brings it."""

    reason: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Left:
    """The worker leaves; the turn goes on and belongs to the next one."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Another worker has taken the turn over."""


RunOutcome = TurnResult | Parked | Left | Lost


class TurnRun:
    """Works on one claimed turn. All methods are to be called on the loop that runs it."""

    def __init__(self, equipment: Equipment, claim: Claim) -> None:
        self._equipment = equipment
        self._request: TurnRequest = claim.request
        self._adapter: Adapter = equipment.registry.get(claim.request.agent)
        self._attempt_run: AttemptRun | None = None
        self._asked: TurnError | None = errors.TurnCancelled() if claim.cancel_requested else None
        self._leaving = asyncio.Event()
        self._lost = False
        self._claimed_at = equipment.monotonic()
        self.claim = claim

    def cancel(self) -> None:
        """Somebody wants the turn ended."""
        self._asked = self._asked or errors.TurnCancelled()
        if self._attempt_run is not None:
            self._attempt_run.stop(self._asked)

    def leave(self) -> None:
        """The worker is told to go: let the agent run on."""
        self._leaving.set()
        if self._attempt_run is not None:
            self._attempt_run.detach()

    def lose(self) -> None:
        """The claim was taken over: leave everything to its new owner."""
        self._lost = True
        self.leave()

    async def run(self) -> RunOutcome:
        """Bring the turn as far as this worker can."""
        try:
            return await self._work()
        except Detached:
            if self._lost:
                return Lost()
            await asyncio.to_thread(self._release)
            return Left()
        except StaleClaim:
            return Lost()
        except Exception:
            # A fault of ours must not lose the turn: somebody, here or elsewhere, attaches to its agent again.
            log.exception("a turn's worker failed", turn_id=self.claim.turn_id)
            return await self._set_aside()

    async def _set_aside(self) -> RunOutcome:
        due_at = self._equipment.clock() + _FAULT_PAUSE_S
        now = self._equipment.clock()
        try:
            await asyncio.to_thread(self._equipment.ledger.wait, self.claim, due_at, "internal_error", now)
        except (LedgerUnavailable, StaleClaim):
            return Lost()  # the claim runs out by itself, and the turn comes back
        return Parked("internal_error: see the worker's log", _FAULT_PAUSE_S)

    def _release(self) -> None:
        with contextlib.suppress(LedgerUnavailable):  # the lease runs out by itself
            self._equipment.ledger.release(self.claim)

    async def _work(self) -> RunOutcome:
        try:
            attempt = self.claim.open or await self._begin()
        except TurnError as error:
            return await self._give_up(error)
        command = self._command(Session(attempt.session_id or "", attempt.resume))
        run = AttemptRun(self._equipment, self.claim, attempt, self._adapter, Redactor.of_environment(command.env))
        self._attempt_run = run
        if self._asked is not None:
            run.stop(self._asked)
        if self._leaving.is_set():
            run.detach()
        try:
            ended = await self._follow(run, attempt, command)
        except HostUnreachable as fault:
            return await self._give_up(turn_error(fault))  # the agent may be running: the attempt stays open
        except HostError as fault:
            return await self._conclude(run, attempt, Judgement(turn_error(fault), run.state.estimate), None)
        judged = await self._judge(run, attempt, ended, command)
        return await self._conclude(run, attempt, judged, ended.exit.code)

    @property
    def _previous(self) -> Attempt | None:
        """The last attempt that has ended."""
        return next((attempt for attempt in reversed(self.claim.attempts) if attempt.ended_at is not None), None)

    # -- before the agent

    async def _begin(self) -> Attempt:
        """Record a new attempt. Raises TurnError if the turn must not start, or not now."""
        if self._asked is not None:
            raise self._asked
        now = self._equipment.clock()
        if self._request.deadline_at is not None and now >= self._request.deadline_at:
            raise errors.DeadlineExceeded("the deadline passed before the turn could start")
        host = self._equipment.hosts.name_for(self._request.host)
        session = await self._session(host)
        await self._lock(session.session_id, host)
        number = self.claim.last.attempt + 1 if self.claim.last else 1
        return await self._booked(
            self._equipment.ledger.begin_attempt,
            self.claim,
            host=host,
            spool_id=f"{self.claim.turn_id}.{number}",
            nonce=secrets.token_hex(8),
            session_id=session.session_id,
            resume=session.resume,
            now=now,
        )

    async def _session(self, host: str) -> Session:
        """The session of the next attempt. Raises SessionNotFound."""
        if (last := self._previous) and last.session_id and await self._has_history(last):
            return Session(last.session_id, resume=True)
        wanted = self._request.session_id
        if wanted is None:
            return Session(str(uuid.uuid4()), resume=False)
        known = await self._booked(self._equipment.ledger.session, wanted)
        place = (self._request.agent, host, self._request.workspace)
        if known is None:
            raise errors.SessionNotFound(f"session {wanted} is not known; it must come from an earlier turn")
        if (known.agent, known.host, known.workspace) != place:
            raise errors.SessionNotFound(
                f"session {wanted} belongs to {known.agent} on host {known.host} in {known.workspace}; use these"
            )
        return Session(wanted, resume=True)

    async def _has_history(self, last: Attempt) -> bool:
        """Whether the last attempt left a session worth resuming: the model has answered in it, or before it."""
        if self._command(Session(last.session_id or "", resume=False)).session_files is None:
            return False
        if last.resume:
            return True
        used = (await self._booked(self._equipment.ledger.usage_of, self.claim.turn_id)).get(last.attempt)
        return used is not None and used.tokens.total > 0

    async def _lock(self, session_id: str, host: str) -> None:
        locked = await self._booked(
            self._equipment.ledger.lock_session,
            self.claim,
            session_id,
            agent=self._request.agent,
            host=host,
            workspace=self._request.workspace,
            now=self._equipment.clock(),
        )
        if isinstance(locked, InUse):
            raise errors.SessionInUse(f"turn {locked.turn_id} is running in session {session_id}")

    def _command(self, session: Session) -> Command:
        request = self._request
        previous = self._previous
        if previous is not None and session.resume and previous.session_id == session.session_id:
            request = request.model_copy(update={"prompt": _continuation(request.prompt, previous)})
        command = self._adapter.build(request, session)
        environ = self._equipment.environ
        forwarded = {name: environ[name] for name in command.forward_env if name in environ}
        return replace(command, env={**forwarded, **command.env})

    # -- the agent

    async def _follow(self, run: AttemptRun, attempt: Attempt, command: Command) -> Ended:
        # Once it has printed, it must still be there: starting it again would run the turn twice.
        stored = await self._booked(self._equipment.ledger.last_seq, self.claim.turn_id)
        started = stored > attempt.first_seq
        host = self._equipment.hosts.get(attempt.host)
        return await run.run(host, self._spool(attempt), None if started else command)

    def _spool(self, attempt: Attempt) -> Spool:
        return Spool(self._equipment.spool_root, attempt.spool_id)

    # -- after the agent

    async def _judge(self, run: AttemptRun, attempt: Attempt, ended: Ended, command: Command) -> Judgement:
        host, spool = self._equipment.hosts.get(attempt.host), self._spool(attempt)
        stderr = await _tolerant(read_stderr_tail(host, spool), b"")
        end = Exit(ended.exit.code, run.redacted(stderr))
        judged = self._adapter.judgement(run.state, end)
        if judged.read_session_files and command.session_files is not None:
            records = await _tolerant(read_session_files(host, spool, command.session_files), b"")
            exact = self._adapter.session_usage(records.splitlines(), run.state)
            judged = replace(judged, usage=exact if exact.by_model else judged.usage)
        return replace(judged, error=_why(judged.error, ended, end))

    async def _conclude(
        self, run: AttemptRun, attempt: Attempt, judged: Judgement, code: int | None
    ) -> RunOutcome:
        error, now = judged.error, self._equipment.clock()
        decision = self._decide(error, attempt.attempt) if error else None
        run.emit_end(error, decision.due_at if decision else None)
        ended = AttemptEnd(attempt.attempt, judged.usage, error.kind if error else "completed", code)
        if decision is not None and error is not None:
            await self._stored()
            await self._booked(self._equipment.ledger.wait, self.claim, decision.due_at, error.kind, now, ended)
            await self._remove(attempt)
            return self._parked(error, decision)
        usages = await self._booked(self._equipment.ledger.usage_of, self.claim.turn_id)
        result = finished(
            self.claim.turn_id,
            run.state,
            error,
            usages=[*usages.values(), judged.usage],
            host=attempt.host,
            attempts=attempt.attempt,
            exit_code=code,
        )
        result = await self._settle(result, run.next_seq, ended)
        await self._remove(attempt)
        return result

    async def _give_up(self, error: TurnError) -> RunOutcome:
        """No attempt could be begun."""
        number = self._previous.attempt if self._previous else 0
        decision = self._decide(error, number)
        if decision is not None:
            now = self._equipment.clock()
            await self._booked(self._equipment.ledger.wait, self.claim, decision.due_at, error.kind, now)
            return self._parked(error, decision)
        usages = await self._booked(self._equipment.ledger.usage_of, self.claim.turn_id)
        result = refused(self.claim.turn_id, error, attempts=number, usages=usages.values())
        last = await self._booked(self._equipment.ledger.last_seq, self.claim.turn_id)
        return await self._settle(result, last + 1, None)

    async def _settle(self, result: TurnResult, seq: int, ended: AttemptEnd | None) -> TurnResult:
        """Store the last event, settle, and only then tell who watches."""
        now = self._equipment.clock()
        last = TurnSettled(result.status, result.error.kind if result.error else None)
        self._equipment.pump.store(self.claim, seq, [last], now)
        await self._stored()
        settled = await self._booked(self._equipment.ledger.settle, self.claim, result, now, ended)
        self._equipment.pump.publish(self.claim.turn_id, seq, [last], now)
        outcome = settled.error.kind if settled.error else str(settled.status)
        seconds = self._equipment.monotonic() - self._claimed_at
        self._equipment.metrics.turn_settled(self._request.agent, "local", outcome, seconds)
        return settled

    def _decide(self, error: TurnError, attempt: int) -> RetryDecision | None:
        policy = self._equipment.policy(self._request.max_attempts, self._request.max_retry_backoff_ms)
        return policy.decide(
            error, attempt, self._equipment.clock(), self._equipment.rng, self._request.deadline_at
        )

    def _parked(self, error: TurnError, decision: RetryDecision) -> Parked:
        self._equipment.metrics.turn_retried(self._request.agent, error.kind)
        return Parked(f"{error.kind}: {error.message}", max(0.0, decision.due_at - self._equipment.clock()))

    async def _remove(self, attempt: Attempt) -> None:
        """The spool has been booked; what is left behind here goes with the host's next clean-up."""
        await _tolerant(remove_spool(self._equipment.hosts.get(attempt.host), self._spool(attempt)), None)

    # -- the ledger, which may be away for a while

    async def _stored(self) -> None:
        await self._booked(self._equipment.pump.flush, self.claim.turn_id)

    async def _booked(self, operation: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call the ledger until it answers. Raises Detached when the worker has to leave meanwhile."""
        while True:
            try:
                return await asyncio.to_thread(operation, *args, **kwargs)
            except LedgerUnavailable as error:
                log.warning("the ledger does not answer", turn_id=self.claim.turn_id, error=str(error))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._leaving.wait(), _LEDGER_RETRY_S)
                raise Detached


async def _tolerant(action: Awaitable[T], otherwise: T) -> T:
    """What the host says, or `otherwise` if it cannot say anything now."""
    try:
        return await action
    except HostError as fault:
        log.warning("a host did not answer", error=str(fault))
        return otherwise


def _why(error: TurnError | None, ended: Ended, end: Exit) -> TurnError | None:
    """The reason of a failure: ours if we ended the agent, else what the agent and its host say."""
    if error is None or ended.asked is not None:
        return error and ended.asked
    if ended.exit.reason == "lease":
        return errors.HostLost("no worker followed the turn for as long as its lease; the agent was ended")
    if ended.exit.reason == "lost":
        return errors.HostLost("the turn's supervisor on the host was killed; the agent was ended")
    if end.signalled and isinstance(error, errors.TurnCancelled):
        # Nobody here asked for it: out of memory, a reboot, somebody's kill. The turn must not be lost by that.
        return errors.TurnCancelled(error.message, retry=Retry.BACKOFF)
    return error


def _continuation(prompt: str, previous: Attempt) -> str:
    """What a resumed session is told: it has the history, but may have been cut off anywhere in it."""
    return (
        f"The last attempt at this task was interrupted ({previous.outcome}). "
        f"Look at what is done already and continue from there. The task:\n\n{prompt}"
    )
