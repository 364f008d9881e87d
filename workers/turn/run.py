"""Runs one claimed turn until it is settled, parked, or left to the next worker.

The ledger is written before the world changes: an attempt is recorded before its agent starts, its events are
stored before it is booked, and it is booked before its spool is removed. So whenever a worker is killed, the next
one can continue its turn.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from dataclasses import dataclass, replace

import structlog

from adapters import errors
from adapters.command import Command
from adapters.contract import Adapter, Judgement, Session
from adapters.errors import TurnError
from adapters.protocol.request import AUTO, TurnRequest
from adapters.protocol.result import TurnResult
from adapters.protocol.workspace import was_made
from adapters.usage import NO_USAGE
from ops.errors import LedgerUnavailable, StaleClaim
from ops.ledger import Attempt, Claim
from ops.logs import attempt_logging, turn_logging
from remote.errors import HostError
from workers.context import WorkerContext
from workers.hosts.inventory import TurnHost
from workers.ledger_calls import LedgerCalls, WorkerStopping
from workers.live.messages import Reply, Said
from workers.retry import RetryDecision
from workers.turn.agent_selection import AgentSelection
from workers.turn.attempt import AttemptRun
from workers.turn.host_failures import HostFailures
from workers.turn.judgement import UsageOwed, judge
from workers.turn.leases import OWNER_TTL_S
from workers.turn.own_faults import OwnFaults
from workers.turn.placement import Placement
from workers.turn.replay import at_least
from workers.turn.salvage import Salvage
from workers.turn.sessions import AttemptSession
from workers.turn.settlement import Parked, Settlement
from workers.turn.test_commands import CheckRunner
from workers.workspaces.lifecycle import Workspaces

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Left:
    """The worker is stopping; the turn continues, and can be claimed once this claim is released or expires."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Another worker has taken over the turn."""


RunOutcome = TurnResult | Parked | Left | Lost


class RunTurn:
    """Runs one claimed turn. Call all methods on the loop that runs it."""

    def __init__(self, context: WorkerContext, claim: Claim, asked_at: float | None = None) -> None:
        """`asked_at` is the monotonic time at which the claim was requested from the ledger; None: now."""
        self.claim = claim
        self.begun = asyncio.Event()  # the turn has its slot, or needs none
        self.placed: Future[Attempt | None] = Future()  # its attempt; None: it gets none
        self._context = context
        self._ledger = context.ledger
        self._ledger_call = LedgerCalls()
        self._attempt_run: AttemptRun | None = None
        self._start: asyncio.Task[None] | None = None  # the record that the host is told to start the agent
        self._asked = _asked(claim, context.clock())
        self._lost = False
        self._claimed_at = context.monotonic() if asked_at is None else asked_at
        self._held_until = self._claimed_at + OWNER_TTL_S
        self._workspaces = Workspaces(context, claim, self._ledger_call)
        self._conclusion = Settlement(context, claim, self._ledger_call, self._workspaces, self._claimed_at)

    @property
    def held(self) -> bool:
        """True while the claim is certainly ours: no other worker can have taken it over."""
        return self._context.monotonic() < self._held_until

    @property
    def idle_s(self) -> float:
        """Seconds for which the agent has been silent; 0 while there is none."""
        return self._attempt_run.idle_s if self._attempt_run is not None else 0.0

    def renewed(self, until: float) -> None:
        """Note that the ledger has extended the claim until this monotonic time."""
        self._held_until = until

    def cancel(self) -> None:
        """Cancel the turn."""
        self._asked = self._asked or errors.TurnCancelled()
        self._workspaces.stop()
        if self._attempt_run is not None:
            self._attempt_run.ending.stop(self._asked)

    def reply(self, said: Said) -> Reply | None:
        """Return the immediate reply to a producer's message for the agent; None: ask again in a moment.

        May be called from any thread.
        """
        return None if self._attempt_run is None else self._attempt_run.talk.reply(said)

    def hear(self, said: Said) -> None:
        """Pass a producer's message on to the agent."""
        if self._attempt_run is not None:
            self._attempt_run.talk.hear(said)

    def leave(self) -> None:
        """Leave the turn because the worker is stopping; the agent keeps running."""
        self._ledger_call.leave()
        self._workspaces.stop()
        if self._attempt_run is not None:
            self._attempt_run.ending.detach()

    def lose(self) -> None:
        """Leave the turn to the new owner of its claim."""
        self._lost = True
        self.leave()

    async def drive(self) -> RunOutcome:
        """Run the turn as far as this worker can."""
        with turn_logging(self.claim.turn_id):
            return await self._drive()

    async def _drive(self) -> RunOutcome:
        try:
            return await self._work()
        except WorkerStopping:
            return Lost() if self._lost else Left()
        except StaleClaim:
            return Lost()
        except Exception:
            # A fault of ours must not lose the turn: this or another worker attaches to its agent again.
            log.exception("running a turn failed")
            return await self._after_fault()
        finally:
            self.begun.set()
            if not self.placed.done():
                self.placed.set_result(None)

    async def _work(self) -> RunOutcome:
        attempt = self.claim.open
        try:
            if self.claim.request.agent == AUTO:
                await self._route()
            adapter = self._context.registry.get(self.claim.request.agent)
            sessions = AttemptSession(self._context, self.claim, adapter, self._ledger_call)
            attempt = attempt or await self._begin(adapter, sessions)
            self.placed.set_result(attempt)
            attempt_logging(attempt.attempt, attempt.host, attempt.session_id)
            log.info("attached to a turn" if self.claim.open else "attempt started")
            self.begun.set()
            host = self._context.hosts.get(attempt.host)
            request = await self._bring_workspace(attempt, host)
            if was_made(request.workspace):
                host = host.admitting_made()
            command = sessions.command(request, Session(attempt.session_id or "", attempt.resume), host)
        except TurnError as error:
            if attempt is None:
                return await self._conclusion.of_turn(error)
            # A worker with another configuration began it, and may have started the agent, which its lease ends.
            return await self._conclusion.of_unread(attempt, error, started=attempt.start_sent)
        return await self._follow(attempt, adapter, host, command)

    async def _route(self) -> None:
        """Choose the agent that the request leaves open. Raises TurnError."""
        if self._asked is not None:
            raise self._asked
        self.begun.set()  # probing agents takes time, and must not delay other turns
        self.claim = await AgentSelection(self._context, self._ledger_call).chosen(self.claim)
        self._workspaces = Workspaces(self._context, self.claim, self._ledger_call)
        self._conclusion = Settlement(
            self._context, self.claim, self._ledger_call, self._workspaces, self._claimed_at
        )

    async def _begin(self, adapter: Adapter, sessions: AttemptSession) -> Attempt:
        """Record a new attempt. Raise TurnError if the turn must not start, or not now."""
        if self._asked is not None:
            raise self._asked
        if self._ledger_call.leaving:
            raise WorkerStopping
        request, now = self.claim.request, self._context.clock()
        self._context.registry.check(request)
        await self._workspaces.check()
        self._context.hosts.candidates(request)
        if request.deadline_at is not None and now >= request.deadline_at:
            raise errors.DeadlineExceeded("the deadline passed before the turn could start")
        return await Placement(self._context, self.claim, sessions, self._ledger_call).begin()

    async def _bring_workspace(self, attempt: Attempt, host: TurnHost) -> TurnRequest:
        """Return the request in its workspace, created if necessary. Raises TurnError, WorkerStopping."""
        try:
            return await self._workspaces.bring(attempt, host)
        except WorkerStopping:
            if self._ledger_call.leaving or self._asked is None:
                raise
            raise self._asked from None

    async def _follow(self, attempt: Attempt, adapter: Adapter, host: TurnHost, command: Command) -> RunOutcome:
        redactor = self._context.secrets.and_of_environment(command.env).and_of_files(command.files)
        run = AttemptRun(self._context, self.claim, attempt, adapter, redactor, lambda: self.held, self._starting)
        if adapter.capabilities.live and (self.claim.open is not None or attempt.attempt > 1):
            stored = await self._ledger_call(self._ledger.events.after, self.claim.turn_id)
            run.talk.recall(event for event in stored if event[0] < attempt.first_seq)
            if self.claim.open is not None:
                run.talk.resume(event for event in stored if event[0] >= attempt.first_seq)
        self._attempt_run = run  # accepts producers' messages from now on: earlier ones are restored
        if self._asked is not None:
            run.ending.stop(self._asked)
        if self._ledger_call.leaving:
            run.ending.detach()
        if attempt.unreachable_since is not None:
            # If we are killed after a heartbeat, the next worker must not count from before it.
            await self._ledger_call(self._ledger.queue.reached, self.claim)
        try:
            return await self._see_through(run, attempt, adapter, host, command)
        finally:
            await run.close()

    async def _see_through(
        self, run: AttemptRun, attempt: Attempt, adapter: Adapter, host: TurnHost, command: Command
    ) -> RunOutcome:
        try:
            ended = await run.run(host, command if self._may_start(attempt) else None)
            spool, outputs = host.spool(attempt.spool_id, attempt.seal), self._context.outputs
            judged = _doubted(await judge(adapter, run, ended, command, host.host, spool, outputs))
            await self._workspaces.collect(host, run.redactor)
            checked = CheckRunner(self._context, self.claim, attempt, run, self._ledger_call)
            judged, checks = await checked.after(judged, command)
        except WorkerStopping:
            return await self._detached(run)
        except TurnError as error:
            return await self._conclusion.of_attempt(attempt, run.state, run.next_seq, Judgement(error, NO_USAGE))
        except HostError as fault:
            salvage = Salvage(self._context, self.claim, attempt, adapter, command, self._ledger_call)
            failures = HostFailures(self._context, self.claim, self._conclusion, salvage)
            return await failures.dealt_with(run, attempt, fault)
        return await self._conclusion.of_attempt(
            attempt,
            run.state,
            run.next_seq,
            judged,
            ended.exit,
            spool_stays=isinstance(judged, UsageOwed),
            run=run,
            dropped=run.dropped_events,
            checks=checks,
        )

    async def _detached(self, run: AttemptRun) -> Parked:
        """Leave if the worker is stopping. Otherwise park: the turn was stopped just as its agent was to start."""
        if self._start is not None and not run.heard:
            await self._withdraw(self._start)
        if self._ledger_call.leaving or run.ending.why is None:
            raise WorkerStopping
        return await self._conclusion.park(run.ending.why, RetryDecision(self._context.clock(), counts=False))

    def _may_start(self, attempt: Attempt) -> bool:
        """Return whether to start the agent. Once its host was told to, it must still be there, or was lost."""
        return not attempt.start_sent and self._asked is None

    async def _starting(self) -> None:
        """Record that the host is about to be told to start the agent. Raises StaleClaim, WorkerStopping.

        This verifies the claim in the ledger: a worker that was frozen while another one finished the turn and
        removed its spool would start the agent a second time.
        """
        self._start = asyncio.create_task(self._ledger_call(self._ledger.queue.start, self.claim))
        self._start.add_done_callback(lambda start: start.cancelled() or start.exception())  # perhaps nobody waits
        await asyncio.shield(self._start)

    async def _withdraw(self, start: asyncio.Task[None]) -> None:
        """Record that the host was not told to start the agent after all, so that the next worker may tell it."""
        await asyncio.wait([start])
        if not start.cancelled() and start.exception() is None:
            await self._ledger_call(self._ledger.queue.start, self.claim, sent=False)

    async def _after_fault(self) -> RunOutcome:
        attempt = self.placed.result() if self.placed.done() else self.claim.open
        try:
            return await OwnFaults(self._context, self.claim, self._conclusion).dealt_with(attempt)
        except (LedgerUnavailable, StaleClaim):
            return Lost()  # the claim expires by itself, and the turn comes back
        except WorkerStopping:
            return Lost() if self._lost else Left()


def _asked(claim: Claim, now: float) -> TurnError | None:
    """Return why a turn that was just claimed must end; None: it may run."""
    if claim.cancel_requested:
        return errors.TurnCancelled()
    late = claim.expires_at is not None and now >= claim.expires_at
    return errors.TurnExpired() if late and not claim.attempts else None


def _doubted(judged: Judgement) -> Judgement:
    """Mark usage as incomplete if neither the lost agent nor its session files reported it."""
    if isinstance(judged.error, errors.HostLost) and not judged.usage.source.observed:
        return replace(judged, usage=at_least(judged.usage))
    return judged
