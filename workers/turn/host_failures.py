"""Handles attempts whose host fails: each is over, given up as lost, or waited for."""

from __future__ import annotations

import structlog

from adapters import errors
from adapters.contract import Judgement
from adapters.errors import Retry, TurnError
from adapters.protocol.result import TurnResult
from adapters.usage import NO_USAGE
from ops.ledger import Attempt, Claim
from remote.errors import HostError, LineTooLong, SpawnRefused
from workers.context import WorkerContext
from workers.hosts.errors import turn_error
from workers.retry import RetryDecision
from workers.turn.attempt import AttemptRun
from workers.turn.leases import AgentLease
from workers.turn.salvage import Salvage
from workers.turn.settlement import Parked, Settlement
from workers.turn.termination import NotEnded

FAULT_PAUSE_S = 30.0  # shorter than any sensible lease, so that the agent stays alive

_LOST = ("spool_missing", "spool_shortened")  # codes of a host that cannot show what the agent has printed

log = structlog.get_logger(__name__)


class HostFailures:
    """Host failures of one claim."""

    def __init__(self, context: WorkerContext, claim: Claim, conclusion: Settlement, salvage: Salvage) -> None:
        self._context = context
        self._claim = claim
        self._conclusion = conclusion
        self._salvage = salvage

    async def dealt_with(self, run: AttemptRun, attempt: Attempt, fault: HostError) -> TurnResult | Parked:
        """Book the attempt if it is over, and park or settle its turn. Raises WorkerStopping and StaleClaim."""
        if isinstance(fault, NotEnded):
            return await self._not_ended(run, attempt, fault)
        if not _is_final(fault, run, attempt):
            return await self._out_of_reach(run, attempt, fault)
        if not isinstance(fault, SpawnRefused) or fault.code not in _LOST:
            why, started = _why(run) or turn_error(fault), not isinstance(fault, SpawnRefused)
            dropped = run.dropped_events
            return await self._conclusion.of_unread(attempt, why, run.exit, started=started, dropped=dropped)
        try:
            return await self._lost(run, attempt, fault)
        except HostError as loss:
            return await self._out_of_reach(run, attempt, loss)

    async def _lost(self, run: AttemptRun, attempt: Attempt, fault: SpawnRefused) -> TurnResult | Parked:
        """Book an attempt whose output is lost. Raises HostError while its agent may be running."""
        why = _why(run) or turn_error(fault)
        salvage = self._salvage
        read = salvage.of_lost_spool if fault.code == "spool_missing" else salvage.of_stuck_turn
        return await self._conclusion.of_unread(attempt, why, run.exit, read=read, dropped=run.dropped_events)

    async def _not_ended(self, run: AttemptRun, attempt: Attempt, fault: NotEnded) -> TurnResult | Parked:
        """Book an attempt whose shells do not end it. Another may not follow: its agent may still be running."""
        why = fault.why.with_retry(Retry.NEVER, f"{fault.why.message}; {fault}")
        try:
            read, dropped = self._salvage.of_stuck_turn, run.dropped_events
            return await self._conclusion.of_unread(attempt, why, read=read, dropped=dropped)
        except HostError as loss:
            log.warning("an agent could not be terminated; its lease ends it", error=str(loss))
            return await self._conclusion.of_unread(attempt, why, dropped=run.dropped_events)

    async def _out_of_reach(self, run: AttemptRun, attempt: Attempt, fault: HostError) -> TurnResult | Parked:
        """Give up an attempt on an unreachable host, or park its turn. Its lease still limits a running agent."""
        now = self._context.clock()
        if not attempt.start_sent and not run.heard:
            # The host never received this attempt.
            unheard = Judgement(run.ending.why or turn_error(fault), NO_USAGE)
            return await self._conclusion.of_attempt(attempt, run.state, run.next_seq, unheard, spool_stays=True)
        since = attempt.unreachable_since if run.over or not run.heard else None
        since = now - run.out_of_reach_s if since is None else since
        over = self._given_up(run, attempt, now - since, fault)
        if over is not None:
            return await self._conclusion.of_unread(attempt, over, run.exit, dropped=run.dropped_events)
        later = RetryDecision(now + FAULT_PAUSE_S, counts=False)
        return await self._conclusion.park(turn_error(fault), later, unreachable_since=since)

    def _given_up(
        self, run: AttemptRun, attempt: Attempt, out_of_reach_s: float, fault: HostError
    ) -> TurnError | None:
        """Return why to stop waiting: the host has certainly terminated the agent. None: keep waiting."""
        if out_of_reach_s < AgentLease.on(attempt, self._context.settings.agent).fence_s:
            return None
        if (why := _why(run)) is not None:
            return why
        if run.over:
            return errors.HostLost(f"its agent has ended, and what it used cannot be read; {fault}")
        if self._claim.request.on_host_lost == "same_host":
            return None
        return errors.HostLost(f"unreachable for longer than its lease; {fault}")


def _why(run: AttemptRun) -> TurnError | None:
    """Return why the agent was terminated, if we or its host did that on purpose."""
    return run.ending.why or run.exceeded


def _is_final(fault: HostError, run: AttemptRun, attempt: Attempt) -> bool:
    """Return whether a host fault ends the attempt. If it only keeps us out, the agent keeps running."""
    if isinstance(fault, SpawnRefused):
        began = attempt.start_sent or run.reached
        return not began or fault.code in _LOST
    if isinstance(fault, LineTooLong):
        return True
    # A host that reported the exit and then could not return the usage may never be able to.
    return run.over and type(fault) is HostError
