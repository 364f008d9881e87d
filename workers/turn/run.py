"""One claim of one turn: from the claim to its result, its parking, or the next worker.

The ledger is told before the world changes: an attempt is recorded before its agent starts, its events are stored
before it is booked, and it is booked before its spool is removed. So a worker that is killed anywhere leaves a
turn that the next one can go on with.
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
from workers.turn.host_failures import FAULT_PAUSE_S, HostFailures
from workers.turn.judgement import UsageOwed, judge
from workers.turn.leases import OWNER_TTL_S
from workers.turn.placement import Placement
from workers.turn.replay import at_least
from workers.turn.sessions import AttemptSession
from workers.turn.settlement import Parked, Settlement
from workers.turn.test_commands import CheckRunner
from workers.workspaces.lifecycle import Workspaces

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Left:
    """The worker leaves; the turn goes on, and is the next one's once its claim is released or has run out."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Another worker has taken the turn over."""


RunOutcome = TurnResult | Parked | Left | Lost


class RunTurn:
    """Works on one claimed turn. All methods are to be called on the loop that runs it."""

    def __init__(self, context: WorkerContext, claim: Claim, asked_at: float | None = None) -> None:
        """`asked_at` is when the ledger was asked for the claim, by the monotonic clock; None: just now."""
        self.claim = claim
        self.begun = asyncio.Event()  # it has taken its slot, or needs none
        self.placed: Future[Attempt | None] = Future()  # it has its attempt, or will have none
        self._context = context
        self._ledger = context.ledger
        self._ledger_call = LedgerCalls()
        self._attempt_run: AttemptRun | None = None
        self._asked = _asked(claim, context.clock())
        self._lost = False
        self._claimed_at = context.monotonic() if asked_at is None else asked_at
        self._held_until = self._claimed_at + OWNER_TTL_S
        self._workspaces = Workspaces(context, claim, self._ledger_call)
        self._conclusion = Settlement(context, claim, self._ledger_call, self._workspaces, self._claimed_at)

    @property
    def held(self) -> bool:
        """Whether the claim is ours for certain: nobody can have taken it over."""
        return self._context.monotonic() < self._held_until

    @property
    def idle_s(self) -> float:
        """For how long its agent has said nothing; 0: it has none just now."""
        return self._attempt_run.idle_s if self._attempt_run is not None else 0.0

    def renewed(self, until: float) -> None:
        """The ledger has prolonged the claim, until then by the monotonic clock."""
        self._held_until = until

    def cancel(self) -> None:
        """Somebody wants the turn ended."""
        self._asked = self._asked or errors.TurnCancelled()
        self._workspaces.stop()
        if self._attempt_run is not None:
            self._attempt_run.ending.stop(self._asked)

    def reply(self, said: Said) -> Reply | None:
        """What a producer is told at once that says something to the agent; None: that is about to come.

        May be called from any thread.
        """
        return None if self._attempt_run is None else self._attempt_run.talk.reply(said)

    def hear(self, said: Said) -> None:
        """A producer says something to the agent."""
        if self._attempt_run is not None:
            self._attempt_run.talk.hear(said)

    def leave(self) -> None:
        """The worker is told to go: let the agent run on."""
        self._ledger_call.leave()
        self._workspaces.stop()
        if self._attempt_run is not None:
            self._attempt_run.ending.detach()

    def lose(self) -> None:
        """The claim was taken over: leave everything to its new owner."""
        self._lost = True
        self.leave()

    async def drive(self) -> RunOutcome:
        """Run the turn: bring it as far as this worker can."""
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
            # A fault of ours must not lose the turn: somebody, here or elsewhere, attaches to its agent again.
            log.exception("a turn's worker failed")
            return await self._set_aside()
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
            log.info("a turn is attached to" if self.claim.open else "an attempt begins")
            self.begun.set()
            host = self._context.hosts.get(attempt.host)
            request = await self._bring_workspace(attempt, host)
            if was_made(request.workspace):
                host = host.admitting_made()
            command = sessions.command(request, Session(attempt.session_id or "", attempt.resume), host)
        except TurnError as error:
            if attempt is None:
                return await self._conclusion.of_turn(error)
            # A worker with another configuration began it, and may have started its agent: its lease ends that.
            started = self.claim.open is not None and self._workspaces.ready
            return await self._conclusion.of_unread(attempt, error, started=started)
        return await self._follow(attempt, adapter, host, command)

    async def _route(self) -> None:
        """Choose the agent that the request leaves open. Raises TurnError."""
        if self._asked is not None:
            raise self._asked
        self.begun.set()  # to look at agents takes time, and others are not to wait for it
        self.claim = await AgentSelection(self._context, self._ledger_call).chosen(self.claim)
        self._workspaces = Workspaces(self._context, self.claim, self._ledger_call)
        self._conclusion = Settlement(
            self._context, self.claim, self._ledger_call, self._workspaces, self._claimed_at
        )

    async def _begin(self, adapter: Adapter, sessions: AttemptSession) -> Attempt:
        """Record a new attempt. Raises TurnError if the turn must not start, or not now."""
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
        """The request in its workspace, which is made if it has to be. Raises TurnError, Detached."""
        try:
            return await self._workspaces.bring(attempt, host)
        except WorkerStopping:
            if self._ledger_call.leaving or self._asked is None:
                raise
            raise self._asked from None

    async def _follow(self, attempt: Attempt, adapter: Adapter, host: TurnHost, command: Command) -> RunOutcome:
        redactor = self._context.secrets.and_of_environment(command.env).and_of_files(command.files)
        run = AttemptRun(self._context, self.claim, attempt, adapter, redactor, lambda: self.held)
        if adapter.capabilities.live and (self.claim.open is not None or attempt.attempt > 1):
            stored = await self._ledger_call(self._ledger.events.after, self.claim.turn_id)
            run.talk.recall(event for event in stored if event[0] < attempt.first_seq)
            if self.claim.open is not None:
                run.talk.resume(event for event in stored if event[0] >= attempt.first_seq)
        self._attempt_run = run  # producers are heard from now on: it knows what they have said before
        if self._asked is not None:
            run.ending.stop(self._asked)
        if self._ledger_call.leaving:
            run.ending.detach()
        if attempt.unreachable_since is not None:
            # Should we be killed after a heartbeat, nobody may count from before it.
            await self._ledger_call(self._ledger.queue.reached, self.claim)
        try:
            return await self._see_through(run, attempt, adapter, host, command)
        finally:
            await run.close()

    async def _see_through(
        self, run: AttemptRun, attempt: Attempt, adapter: Adapter, host: TurnHost, command: Command
    ) -> RunOutcome:
        try:
            ended = await run.run(host, command if await self._may_start(attempt) else None)
            spool, outputs = host.spool(attempt.spool_id), self._context.outputs
            judged = _doubted(await judge(adapter, run, ended, command, host.host, spool, outputs))
            await self._workspaces.collect(host, run.redactor)
            checked = CheckRunner(self._context, self.claim, attempt, run, self._ledger_call)
            judged, checks = await checked.after(judged, command)
        except WorkerStopping:
            return await self._detached(run)
        except TurnError as error:
            return await self._conclusion.of_attempt(attempt, run.state, run.next_seq, Judgement(error, NO_USAGE))
        except HostError as fault:
            return await HostFailures(self._context, self.claim, self._conclusion).dealt_with(run, attempt, fault)
        return await self._conclusion.of_attempt(
            attempt,
            run.state,
            run.next_seq,
            judged,
            ended.exit.code,
            spool_stays=isinstance(judged, UsageOwed),
            run=run,
            checks=checks,
        )

    async def _detached(self, run: AttemptRun) -> Parked:
        """Leave, if the worker is to. Else the turn was to end just when its host set out to start the agent."""
        if self._ledger_call.leaving or run.ending.why is None:
            raise WorkerStopping
        return await self._conclusion.park(run.ending.why, RetryDecision(self._context.clock(), counts=False))

    async def _may_start(self, attempt: Attempt) -> bool:
        """Whether the agent is to be started, if it was not. Raises StaleClaim.

        The ledger is asked in the owner's name: a worker that was frozen till now, while another one has finished
        the turn and removed its spool, would start it a second time.
        """
        stored = await self._ledger_call(self._ledger.events.append, self.claim, attempt.first_seq, ())
        # Once it has printed, it must still be there: starting it again would run the turn twice.
        return stored <= attempt.first_seq and self._asked is None

    async def _set_aside(self) -> RunOutcome:
        now = self._context.clock()
        due_at = now + FAULT_PAUSE_S
        parked = (self.claim, due_at, "internal_error", now)
        try:
            await asyncio.to_thread(self._ledger.queue.wait, *parked)
        except (LedgerUnavailable, StaleClaim):
            return Lost()  # the claim runs out by itself, and the turn comes back
        return Parked("internal_error: see the worker's log", due_at)


def _asked(claim: Claim, now: float) -> TurnError | None:
    """Why the turn is to end that has just been claimed."""
    if claim.cancel_requested:
        return errors.TurnCancelled()
    late = claim.expires_at is not None and now >= claim.expires_at
    return errors.TurnExpired() if late and not claim.attempts else None


def _doubted(judged: Judgement) -> Judgement:
    """A judgement that takes no usage for complete which neither a lost agent nor its session files have told."""
    if isinstance(judged.error, errors.HostLost) and not judged.usage.source.observed:
        return replace(judged, usage=at_least(judged.usage))
    return judged
