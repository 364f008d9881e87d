"""One claim of one turn: from the claim to its result, its parking, or the next worker.

The ledger is told before the world changes: an attempt is recorded before its agent starts, its events are stored
before it is booked, and it is booked before its spool is removed. So a worker that is killed anywhere leaves a
turn that the next one can go on with.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass

import orjson
import structlog

from adapters import errors
from adapters.contract import Adapter, Judgement, Session
from adapters.errors import Retry, TurnError
from adapters.result import TurnResult
from adapters.usage import NO_USAGE
from ops.errors import LedgerUnavailable, StaleClaim
from ops.ledger import Attempt, AttemptEnd, Claim
from ops.redaction import Redactor
from remote.errors import HostAuthFailed, HostError, HostKeyChanged, HostUnreachable
from remote.upkeep import remove_spool
from workers.attempt import AttemptRun
from workers.equipment import Equipment
from workers.faults import turn_error
from workers.fencing import OWNER_TTL_S, fence_s
from workers.lifecycle import TurnSettled
from workers.outcome import finished, refused
from workers.patience import Detached, Patience
from workers.placement import Placement
from workers.recall import recall
from workers.retry import RetryDecision
from workers.sessions import Sessions
from workers.verdict import judge, tolerant

_FAULT_PAUSE_S = 30.0  # below any sensible lease, so that the agent lives on

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Parked:
    """The turn comes back later; the ledger brings it."""

    reason: str


@dataclass(frozen=True, slots=True)
class Left:
    """The worker leaves; the turn goes on and belongs to the next one."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Another worker has taken the turn over."""


RunOutcome = TurnResult | Parked | Left | Lost


class TurnRun:
    """Works on one claimed turn. All methods are to be called on the loop that runs it."""

    def __init__(self, equipment: Equipment, claim: Claim, asked_at: float | None = None) -> None:
        """`asked_at` is when the ledger was asked for the claim, by the monotonic clock; None: just now."""
        self.claim = claim
        self._equipment = equipment
        self._ledger = equipment.ledger
        self._adapter: Adapter = equipment.registry.get(claim.request.agent)
        self._patiently = Patience(claim.turn_id)
        self._sessions = Sessions(equipment, claim, self._adapter, self._patiently)
        self._placement = Placement(equipment, claim, self._sessions, self._patiently)
        self._attempt_run: AttemptRun | None = None
        self._asked: TurnError | None = errors.TurnCancelled() if claim.cancel_requested else None
        self._lost = False
        self._claimed_at = equipment.monotonic() if asked_at is None else asked_at
        self._held_until = self._claimed_at + OWNER_TTL_S

    @property
    def held(self) -> bool:
        """Whether the claim is ours for certain: nobody can have taken it over."""
        return self._equipment.monotonic() < self._held_until

    def renewed(self, until: float) -> None:
        """The ledger has prolonged the claim, until then by the monotonic clock."""
        self._held_until = until

    def cancel(self) -> None:
        """Somebody wants the turn ended."""
        self._asked = self._asked or errors.TurnCancelled()
        if self._attempt_run is not None:
            self._attempt_run.stop(self._asked)

    def leave(self) -> None:
        """The worker is told to go: let the agent run on."""
        self._patiently.leave()
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
            with contextlib.suppress(LedgerUnavailable):  # the claim runs out by itself
                await asyncio.to_thread(self._ledger.release, self.claim)
            return Left()
        except StaleClaim:
            return Lost()
        except Exception:
            # A fault of ours must not lose the turn: somebody, here or elsewhere, attaches to its agent again.
            log.exception("a turn's worker failed", turn_id=self.claim.turn_id)
            return await self._set_aside()

    async def _work(self) -> RunOutcome:
        try:
            attempt = self.claim.open or await self._begin()
        except TurnError as error:
            return await self._give_up(error)
        return await self._follow(attempt)

    async def _begin(self) -> Attempt:
        """Record a new attempt. Raises TurnError if the turn must not start, or not now."""
        if self._asked is not None:
            raise self._asked
        if self._patiently.leaving:
            raise Detached
        request, now = self.claim.request, self._equipment.clock()
        if request.deadline_at is not None and now >= request.deadline_at:
            raise errors.DeadlineExceeded("the deadline passed before the turn could start")
        return await self._placement.begin()

    async def _follow(self, attempt: Attempt) -> RunOutcome:
        host = self._equipment.hosts.get(attempt.host)
        command = self._sessions.command(Session(attempt.session_id or "", attempt.resume), host)
        redactor = Redactor.of_environment(command.env)
        run = self._attempt_run = AttemptRun(
            self._equipment, self.claim, attempt, self._adapter, redactor, lambda: self.held
        )
        if self._asked is not None:
            run.stop(self._asked)
        if self._patiently.leaving:
            run.detach()
        if attempt.unreachable_since is not None:
            # Should we be killed after a heartbeat, nobody may count from before it.
            await self._patiently(self._ledger.reached, self.claim)
        try:
            ended = await run.run(host, command if await self._may_start(attempt) else None)
            judged = await judge(self._adapter, run, ended, command, host.host, host.spool(attempt.spool_id))
        except TurnError as error:
            return await self._conclude(run, attempt, Judgement(error, NO_USAGE), None)
        except (HostUnreachable, HostAuthFailed, HostKeyChanged) as fault:
            return await self._out_of_reach(run, attempt, fault)
        except HostError as fault:
            why = run.why or turn_error(fault)
            await self._recall(run, attempt)
            return await self._conclude(run, attempt, Judgement(why, run.state.estimate), None)
        return await self._conclude(run, attempt, judged, ended.exit.code)

    async def _out_of_reach(self, run: AttemptRun, attempt: Attempt, fault: HostError) -> RunOutcome:
        """The host does not let us in. What may be running there is left to its lease, and to our coming back."""
        now = self._equipment.clock()
        if self.claim.open is None and not run.asked:
            # The host has never heard of this attempt.
            why = run.why or turn_error(fault)
            return await self._conclude(run, attempt, Judgement(why, NO_USAGE), None, reachable=False)
        since = attempt.unreachable_since if not run.asked else None
        since = now - run.out_of_reach_s if since is None else since
        over = self._given_up(run, now - since, fault)
        if over is not None:
            await self._recall(run, attempt)
            return await self._conclude(run, attempt, Judgement(over, run.state.estimate), None, reachable=False)
        later = RetryDecision(now + _FAULT_PAUSE_S, counts=False)
        return await self._park(turn_error(fault), later, None, unreachable_since=since)

    async def _recall(self, run: AttemptRun, attempt: Attempt) -> None:
        """Go on from what is stored of an attempt: a worker before us may have seen more of it."""
        await self._patiently(self._equipment.pump.flush, self.claim.turn_id)
        stored = await self._patiently(self._ledger.events, self.claim.turn_id, attempt.first_seq - 1)
        run.state, run.next_seq = recall(attempt.first_seq, (line for _, line in stored))

    def _given_up(self, run: AttemptRun, out_of_reach_s: float, fault: HostError) -> TurnError | None:
        """Why the attempt is not waited for any longer, its agent having been ended by its host for certain."""
        request = self.claim.request
        if out_of_reach_s < fence_s(self._equipment.settings.agent):
            return None
        if run.why is not None:
            return run.why
        if request.on_host_lost == "same_host":
            return None
        return errors.HostLost(f"out of reach for longer than its lease; {fault}")

    async def _may_start(self, attempt: Attempt) -> bool:
        """Whether the agent is to be started, if it was not. Raises StaleClaim.

        The ledger is asked in the owner's name: a worker that was frozen till now, while another one has finished
        the turn and removed its spool, would start it a second time.
        """
        stored = await self._patiently(self._ledger.append_events, self.claim, attempt.first_seq, ())
        # Once it has printed, it must still be there: starting it again would run the turn twice.
        return stored <= attempt.first_seq and self._asked is None

    async def _conclude(
        self, run: AttemptRun, attempt: Attempt, judged: Judgement, code: int | None, *, reachable: bool = True
    ) -> RunOutcome:
        """Book an attempt that is over, and park or settle the turn."""
        error = self._by_policy(judged.error)
        decision = self._decide(error, attempt.attempt) if error else None
        run.emit_end(error, decision.due_at if decision else None)
        self._equipment.metrics.lines_malformed(self.claim.request.agent, run.state.malformed)
        ended = AttemptEnd(attempt.attempt, judged.usage, error.kind if error else "completed", code)
        outcome: RunOutcome
        if error is not None and decision is not None:
            outcome = await self._park(error, decision, ended)
        else:
            usages = await self._patiently(self._ledger.usage_of, self.claim.turn_id)
            result = finished(
                self.claim.turn_id,
                run.state,
                error,
                usages=[*usages.values(), judged.usage],
                host=attempt.host,
                attempts=attempt.attempt,
                exit_code=code,
            )
            outcome = await self._settle(result, run.next_seq, ended)
        if reachable:  # what is left behind goes with the host's next clean-up
            host = self._equipment.hosts.get(attempt.host)
            await tolerant(remove_spool(host.host, host.spool(attempt.spool_id)), None)
        return outcome

    def _by_policy(self, error: TurnError | None) -> TurnError | None:
        """The error as the request wants it retried."""
        if isinstance(error, errors.HostLost) and self.claim.request.on_host_lost == "never":
            return errors.HostLost(error.message, retry=Retry.NEVER)
        return error

    async def _give_up(self, error: TurnError) -> RunOutcome:
        """No attempt can be begun: park the turn, or settle it without another one."""
        number = self.claim.last.attempt if self.claim.last else 0
        decision = self._decide(error, max(number, 1))
        if decision is not None:
            return await self._park(error, decision, None)
        usages = await self._patiently(self._ledger.usage_of, self.claim.turn_id)
        result = refused(self.claim.turn_id, error, attempts=number, usages=usages.values())
        return await self._settle(result, await self._next_seq(), None)

    async def _next_seq(self) -> int:
        """The number of the turn's last event, which a worker killed before it could settle may have stored."""
        last = await self._patiently(self._ledger.last_seq, self.claim.turn_id)
        stored = await self._patiently(self._ledger.events, self.claim.turn_id, last - 1)
        settling = any(orjson.loads(line)["event"] == TurnSettled.name for _, line in stored)
        return last if settling else last + 1

    async def _park(
        self,
        error: TurnError,
        decision: RetryDecision,
        ended: AttemptEnd | None,
        unreachable_since: float | None = None,
    ) -> Parked:
        now = self._equipment.clock()
        await self._patiently(self._equipment.pump.flush, self.claim.turn_id)
        await self._patiently(
            self._ledger.wait,
            self.claim,
            decision.due_at,
            error.kind,
            now,
            ended,
            unreachable_since=unreachable_since,
            host=error.only if isinstance(error, errors.HostBusy) else None,
        )
        if ended is not None:
            self._equipment.metrics.turn_retried(self.claim.request.agent, error.kind)
        return Parked(f"{error.kind}: {error.message}")

    async def _settle(self, result: TurnResult, seq: int, ended: AttemptEnd | None) -> TurnResult:
        """Store the last event, settle, and only then tell who watches."""
        equipment, now = self._equipment, self._equipment.clock()
        last = TurnSettled(result.status, result.error.kind if result.error else None)
        equipment.pump.store(self.claim, seq, [last], now)
        await self._patiently(equipment.pump.flush, self.claim.turn_id)
        settled = await self._patiently(self._ledger.settle, self.claim, result, now, ended)
        equipment.pump.publish(self.claim.turn_id, seq, [last], now)
        outcome = settled.error.kind if settled.error else str(settled.status)
        seconds = equipment.monotonic() - self._claimed_at
        launcher = equipment.hosts.get(settled.host).launcher if settled.host else "none"
        equipment.metrics.turn_settled(self.claim.request.agent, launcher, outcome, seconds)
        return settled

    async def _set_aside(self) -> RunOutcome:
        now = self._equipment.clock()
        parked = (self.claim, now + _FAULT_PAUSE_S, "internal_error", now)
        try:
            await asyncio.to_thread(self._ledger.wait, *parked)
        except (LedgerUnavailable, StaleClaim):
            return Lost()  # the claim runs out by itself, and the turn comes back
        return Parked("internal_error: see the worker's log")

    def _decide(self, error: TurnError, attempt: int) -> RetryDecision | None:
        request, equipment = self.claim.request, self._equipment
        policy = equipment.policy(request.max_attempts, request.max_retry_backoff_ms)
        return policy.decide(error, attempt, equipment.clock(), equipment.rng, request.deadline_at)
