"""Ends the work on a claim: books an attempt, and settles or parks its turn."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

import orjson
import structlog

from adapters import errors
from adapters.contract import Judgement
from adapters.errors import Retry, TurnError
from adapters.protocol.plan import Plan, read_plan
from adapters.protocol.result import TurnResult
from adapters.protocol.session_result import Check
from adapters.turn_state import TurnState
from adapters.usage import Usage
from ops.ledger import Attempt, AttemptEnd, Claim
from ops.metrics import SettledTurn
from remote.host_queries import remove_spool
from remote.spool import Exit
from workers.context import WorkerContext
from workers.events.model import AttemptEnded, TurnSettled
from workers.hosts.errors import tolerant
from workers.ledger_calls import LedgerCalls
from workers.results import attempt_started, finished, refused
from workers.retry import Final, PastAttempt, RetryDecision, too_dear
from workers.turn.attempt import AttemptRun
from workers.turn.placement import another_may_run
from workers.turn.replay import at_least, recall
from workers.turn.stderr import keep_stderr
from workers.workspaces.lifecycle import Workspaces

ReadUsage = Callable[[TurnState], Awaitable[Usage]]

_UNREAD = Exit(None, "lost")  # of an attempt whose end was not read

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Parked:
    """A parked turn, which the ledger brings back later."""

    reason: str
    due_at: float  # Unix time in seconds


class Settlement:
    """Settlement of one claim. All methods raise WorkerStopping and StaleClaim."""

    def __init__(
        self,
        context: WorkerContext,
        claim: Claim,
        ledger_call: LedgerCalls,
        workspaces: Workspaces,
        claimed_at: float,
    ) -> None:
        """`claimed_at` is monotonic time."""
        self._context = context
        self._ledger = context.ledger
        self._claim = claim
        self._ledger_call = ledger_call
        self._workspaces = workspaces
        self._claimed_at = claimed_at

    async def of_attempt(
        self,
        attempt: Attempt,
        state: TurnState,
        seq: int,
        judged: Judgement,
        end: Exit | None = None,
        *,
        spool_stays: bool = False,
        run: AttemptRun | None = None,
        dropped: int = 0,
        checks: Sequence[Check] = (),
    ) -> TurnResult | Parked:
        """Book a finished attempt, and park or settle its turn.

        `seq` is the number of the attempt's last event. A spool that stays is read when its host is cleaned up.
        A `run` that read the attempt's end has a channel to remove the spool over. `dropped` is the number of
        events that were not recorded.
        """
        if run is not None:
            await keep_stderr(self._context, self._claim, attempt, run, self._ledger_call)
        context, end = self._context, end or _UNREAD
        plan, failure = self._planned(state, judged.error)
        error = self._by_policy(attempt, failure)
        booked = await self._ledger_call(self._ledger.accounting.usage_of, self._claim.turn_id)
        usages = {**booked, attempt.attempt: judged.usage}
        error, decision = self._decided(error, attempt, usages)
        self._emit_end(attempt, seq, error, decision)
        ended = AttemptEnd(
            attempt.attempt,
            judged.usage,
            error.kind if error else "completed",
            end.code,
            cpu_ms=end.cpu_ms,
            peak_memory_bytes=end.peak_memory_bytes,
            session_id=state.session_id,
            agent_version=state.agent_version,
        )
        outcome: TurnResult | Parked
        if error is not None and decision is not None:
            outcome = await self.park(error, decision, ended)
        else:
            result = finished(
                self._claim.turn_id,
                state,
                error,
                usages=usages.values(),
                host=attempt.host,
                agent_version=state.agent_version or attempt.agent_version,
                attempts=attempt.attempt,
                end=end,
                plan=plan,
            )
            outcome = await self._settle(result, seq + 1, ended, checks)
        context.metrics.agent_ended(self._claim.request.agent, attempt.host, end.cpu_ms, end.peak_memory_bytes)
        context.metrics.host_memory_seen(attempt.host, end.least_free_percent)
        context.metrics.lines_malformed(self._claim.request.agent, state.malformed)
        context.metrics.events_dropped(self._claim.request.agent, dropped)
        if not spool_stays:
            host = context.hosts.get(attempt.host)
            removing = (
                run.remove_spool() if run else remove_spool(host.host, host.spool(attempt.spool_id, attempt.seal))
            )
            await tolerant(removing, None)
        return outcome

    async def of_unread(
        self,
        attempt: Attempt,
        error: TurnError,
        end: Exit | None = None,
        *,
        started: bool = True,
        read: ReadUsage | None = None,
        dropped: int = 0,
    ) -> TurnResult | Parked:
        """Book an attempt that cannot be read to its end, with what is stored of it.

        If its agent has `started`, it may have used more: the spool stays, to be read later. `read` does that now;
        its errors are raised.
        """
        state, seq = await self._recall(attempt)
        if seq == attempt.first_seq:  # it ended before any worker tried to start its agent
            begun = attempt_started(attempt, self._claim.request.agent)
            self._context.event_writer.emit(self._claim, seq, [begun], self._context.clock())
            seq += 1
        if read is not None:
            usage = await read(state)
        else:
            usage = at_least(state.estimate) if started else state.estimate
        judged = Judgement(error, usage)
        return await self.of_attempt(attempt, state, seq, judged, end, spool_stays=started, dropped=dropped)

    async def of_turn(self, error: TurnError) -> TurnResult | Parked:
        """Park or settle a turn that cannot have another attempt now."""
        number = self._claim.last.attempt if self._claim.last else 0
        decision = self._decide(error, max(number, 1))
        if isinstance(decision, RetryDecision):
            return await self.park(error, decision)
        usages = await self._ledger_call(self._ledger.accounting.usage_of, self._claim.turn_id)
        result = refused(self._claim.turn_id, error, attempts=number, usages=usages.values())
        return await self._settle(result, await self._next_seq(), None)

    async def park(
        self,
        error: TurnError,
        decision: RetryDecision,
        ended: AttemptEnd | None = None,
        *,
        unreachable_since: float | None = None,
    ) -> Parked:
        """Park the turn; an unfinished attempt stays open."""
        await self._ledger_call(self._context.event_writer.flush, self._claim.turn_id)
        await self._ledger_call(
            self._ledger.queue.wait,
            self._claim,
            decision.due_at,
            error.kind,
            self._context.clock(),
            ended,
            unreachable_since=unreachable_since,
            host=error.only if isinstance(error, errors.HostBusy) else None,
        )
        log.info("turn parked", reason=error.kind, due_in_s=round(decision.due_at - self._context.clock(), 1))
        if ended is not None:
            self._context.metrics.turn_retried(self._claim.turn_id, self._claim.request.agent, error.kind)
        return Parked(f"{error.kind}: {error.message}", decision.due_at)

    async def _recall(self, attempt: Attempt) -> tuple[TurnState, int]:
        """Return what is stored of an attempt: an earlier worker may have seen more of it."""
        await self._ledger_call(self._context.event_writer.flush, self._claim.turn_id)
        stored = await self._ledger_call(self._ledger.events.after, self._claim.turn_id, attempt.first_seq - 1)
        return recall(attempt.first_seq, (line for _, line in stored))

    def _planned(self, state: TurnState, error: TurnError | None) -> tuple[Plan | None, TurnError | None]:
        """Return the plan of a plan turn whose agent reports success, or why there is none."""
        if error is not None or not self._claim.request.plan:
            return None, error
        report = state.report
        try:
            structured, text = (report.structured_output, report.text) if report else (None, "")
            return read_plan(structured, text or state.text), None
        except TurnError as fault:
            return None, fault

    def _emit_end(
        self, attempt: Attempt, seq: int, error: TurnError | None, decision: RetryDecision | None
    ) -> None:
        kind, message = (error.kind, error.message) if error else (None, None)
        last = AttemptEnded(attempt.attempt, kind, message, decision.due_at if decision else None)
        self._context.event_writer.emit(self._claim, seq, [last], self._context.clock())

    async def _settle(
        self, result: TurnResult, seq: int, ended: AttemptEnd | None, checks: Sequence[Check] = ()
    ) -> TurnResult:
        """Store the last event, settle the turn, and only then publish the event."""
        result = await self._workspaces.complete(result)
        context, now = self._context, self._context.clock()
        last = TurnSettled(result.status, result.error.kind if result.error else None)
        context.event_writer.store(self._claim, seq, [last], now)
        await self._ledger_call(context.event_writer.flush, self._claim.turn_id)

        def settle() -> TurnResult:
            # Timed when the ledger answers: from then on, the turn's task belongs to this worker.
            return self._ledger.queue.settle(self._claim, result, context.clock(), ended, checks)

        settled = await self._ledger_call(settle)
        context.event_writer.publish(self._claim.turn_id, seq, [last], now)
        outcome = settled.error.kind if settled.error else str(settled.status)
        log.info("turn settled", outcome=outcome, attempts=settled.attempts, cost_usd=settled.cost_usd)
        try:
            context.metrics.turn_settled(self._counted(settled))
            if context.tracing is not None:
                context.tracing.turn_settled(self._claim, settled, now)
        except Exception:
            log.exception("turn settled, but not counted or traced")  # its result must still be returned
        await self._workspaces.remove()
        return settled

    def _counted(self, result: TurnResult) -> SettledTurn:
        return SettledTurn(
            turn_id=result.turn_id,
            agent=self._claim.request.agent,
            launcher=self._context.hosts.get(result.host).launcher if result.host else "none",
            outcome=result.error.kind if result.error else str(result.status),
            seconds=self._context.monotonic() - self._claimed_at,
            api_seconds=None if result.duration_api_ms is None else result.duration_api_ms / 1000,
            cost_usd=result.cost_usd,
        )

    async def _next_seq(self) -> int:
        """Return the number of the turn's last event, which a worker killed before settling may have stored."""
        last = await self._ledger_call(self._ledger.events.last_seq, self._claim.turn_id)
        stored = await self._ledger_call(self._ledger.events.after, self._claim.turn_id, last - 1)
        settling = any(orjson.loads(line)["event"] == TurnSettled.name for _, line in stored)
        return last if settling else last + 1

    def _by_policy(self, attempt: Attempt, error: TurnError | None) -> TurnError | None:
        """Return the error with the retry that the request demands, or that another untried host allows."""
        if isinstance(error, errors.HostLost) and self._claim.request.on_host_lost == "never":
            return error.with_retry(Retry.NEVER)
        if isinstance(error, errors.SessionNotFound) and self._claim.request.session_id is None:
            # An earlier attempt's session, which the agent did not keep: the next attempt starts a new one.
            return error.with_retry(Retry.BACKOFF)
        if error is not None and another_may_run(self._context.hosts, self._claim, attempt, error):
            return error.with_retry(Retry.BACKOFF)
        return error

    def _decided(
        self, error: TurnError | None, attempt: Attempt, usages: Mapping[int, Usage]
    ) -> tuple[TurnError | None, RetryDecision | None]:
        """Return the error as reported, and when another attempt follows; None: none does."""
        if error is None:
            return None, None
        outcomes = {past.attempt: past.outcome for past in self._claim.attempts} | {attempt.attempt: error.kind}
        past = [PastAttempt(outcomes.get(number) or "", usage) for number, usage in usages.items()]
        decision = self._decide(error, attempt.attempt, past)
        if decision is Final.MAX_PAID_RETRIES:
            error = too_dear(error, past, self._context.policy(self._claim.request).max_paid_retries)
        return error, decision if isinstance(decision, RetryDecision) else None

    def _decide(self, error: TurnError, attempt: int, past: Sequence[PastAttempt] = ()) -> RetryDecision | Final:
        request, context = self._claim.request, self._context
        now, rng = context.clock(), context.rng
        return context.policy(request).decide(error, attempt, now, rng, request.deadline_at, past)
