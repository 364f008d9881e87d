"""Follows one attempt from its first line, or from where another worker left off, to its exit."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from adapters import errors
from adapters.command import Command
from adapters.contract import Adapter
from adapters.errors import TurnError
from adapters.events import AgentStatus
from adapters.registry import Registry
from adapters.turn_state import TurnState
from ops.ledger import Attempt, Claim, since_boot
from ops.redaction import Redactor
from remote.backoff import Patience
from remote.errors import SpawnRefused
from remote.follower import Follower, Lease
from remote.host_queries import STDERR_TAIL_BYTES, read_input, read_stderr_tail
from remote.spool import Exit
from workers.context import WorkerContext
from workers.events.recorder import EventRecorder
from workers.hosts.errors import turn_error
from workers.hosts.inventory import TurnHost
from workers.limits import Limits, LimitWatch
from workers.live.conversation import LiveTurn, Office
from workers.live.dialogue import Dialogue
from workers.results import attempt_started
from workers.turn.leases import ANSWER_S, AgentLease
from workers.turn.metrics import AttemptMetrics
from workers.turn.output import AgentOutput
from workers.turn.resource_limits import exceeded
from workers.turn.room import RoomWait
from workers.turn.termination import Termination

_FIRST_LOOK_S = 30.0  # how long to try a host on which nothing was started yet
_SECOND_LOOK_S = 10.0  # how long to try a host that was unreachable the last time


@dataclass(frozen=True, slots=True)
class Ended:
    """A finished attempt."""

    exit: Exit
    asked: TurnError | None  # why we terminated the agent or asked it to end; None: it ended by itself


class AttemptRun:
    """Follows one attempt on one loop, until `ending` detaches from it or the agent exits."""

    def __init__(
        self,
        context: WorkerContext,
        claim: Claim,
        attempt: Attempt,
        adapter: Adapter,
        redactor: Redactor,
        held: Callable[[], bool],
        starting: Callable[[], Awaitable[None]],
    ) -> None:
        """`held` returns whether the claim is certainly ours; `starting` is awaited before the agent starts."""
        self.state = TurnState(expects_output=claim.request.output_schema is not None, resumed=attempt.resume)
        self.recorder = EventRecorder(context.event_writer, context.clock, claim, attempt, redactor)
        self.talk = Dialogue(self.recorder, context.clock, _refusal(adapter, context.registry))
        self._context = context
        self._claim = claim
        self._attempt = attempt
        self.redactor = redactor
        self._held = held
        self._starting = starting
        self._hold = AgentLease.on(attempt, context.settings.agent)
        can = adapter.capabilities
        limits = Limits.of(
            claim.request,
            context.settings.agent,
            caps_cost_itself=can.cost_cap,
            ends_by_itself=can.live or adapter.soft_stop("") is not None,
        )
        self._watch = LimitWatch(limits, attempt.started_at, context.moment())
        self.ending = Termination(claim, attempt, adapter, self._watch, context.moment, self._hold.stop_s)
        self._follower: Follower | None = None
        self._reached = False
        self._stderr_tail: bytes | None = None
        self._metrics = AttemptMetrics(context, claim, attempt)
        self._live = LiveTurn(adapter, claim.request, self._office()) if adapter.capabilities.live else None
        self._output = AgentOutput(
            context, adapter, self.state, self.recorder, self._watch, self._metrics, redactor, self._live
        )
        self._host: TurnHost | None = None
        self._command: Command | None = None

    @property
    def next_seq(self) -> int:
        """The number of the next event."""
        return self.recorder.next_seq

    @property
    def dropped_events(self) -> int:
        """Number of events that were not recorded, because the agent printed too much."""
        return self._output.dropped

    @property
    def output_schema(self) -> dict[str, JsonValue] | None:
        """JSON Schema of the output requested from the agent."""
        return self._claim.request.output_schema

    @property
    def held(self) -> bool:
        """True while the claim is certainly ours."""
        return self._held()

    @property
    def over(self) -> bool:
        """True once the host has reported the agent's exit."""
        return self.exit is not None

    @property
    def exit(self) -> Exit | None:
        """The agent's exit, once the host has reported it."""
        return self._follower.exit if self._follower is not None else None

    @property
    def exceeded(self) -> TurnError | None:
        """The limit on its host's resources for which the host has ended the turn, if so."""
        return exceeded(self.exit, self._host, self._claim.request) if self._host is not None else None

    @property
    def reached(self) -> bool:
        """True if the host has been attached to."""
        return self._reached

    @property
    def heard(self) -> bool:
        """True if the host has been attached to, or may have received the command to start the agent."""
        return self._reached or (self._follower is not None and self._follower.asked)

    @property
    def idle_s(self) -> float:
        """Seconds for which the agent has been silent; 0 while its host is not attached, or once it has exited."""
        follower = self._follower
        if follower is None or not follower.attached or follower.exit is not None:
            return 0.0
        return self._watch.silence_s(self._context.moment())

    @property
    def out_of_reach_s(self) -> float:
        """Seconds for which the host has not been attached."""
        return self._follower.out_of_reach_s if self._follower is not None else 0.0

    async def run(self, host: TurnHost, command: Command | None) -> Ended:
        """Start the agent unless it already runs (`command` None: it must), and follow it to its end.

        The channel then stays open for further queries, until `close`.
        Raises WorkerStopping; TurnError if there is nothing to follow, because no shell could run the command or
        because the attempt was stopped before the host received it; and `remote.errors.HostError` if the host
        refuses or stays unreachable.
        """
        self.recorder.tell([attempt_started(self._attempt, self._claim.request.agent)])
        if self._live is not None:
            self.recorder.tell([AgentStatus("provisioning")])
        self._metrics.launcher = host.launcher
        self._host, self._command = host, command
        follower = self._follower = Follower(
            host.host,
            host.spool(self._attempt.spool_id, self._attempt.seal),
            command,
            workspace_roots=host.workspace_roots,
            containment=host.containment(self._claim.request),
            lease=self._lease(),
            patience=self._patience(),
            clock=since_boot,  # as hosts count, by which they recognize late heartbeats
        )
        try:
            async with self.ending.seen_to(follower, self._live), self._attached(follower):
                await self._output.read(follower)
        except SpawnRefused as refusal:
            if self._live is not None:
                self.recorder.tell([AgentStatus("error", turn_error(refusal).message)])
            raise
        finally:
            if follower.exit is None:
                await follower.detach()
            self.talk.close(ended=follower.exit is not None)
            if self._live is not None:
                await self._live.close(ended=follower.exit is not None)
            self.recorder.close()
        if follower.exit is None:
            raise self.ending.left()
        self._metrics.ended(follower.exit)
        return Ended(follower.exit, self.ending.of(follower.exit))

    async def stderr_tail(self) -> bytes:
        """Return the end of the agent's stderr, once it has exited. Raises HostError."""
        assert self._follower is not None  # noqa: S101 - the agent has exited
        if self._stderr_tail is None:
            self._stderr_tail = await self._follower.stderr_tail()
        return self._stderr_tail

    async def stderr(self, max_bytes: int) -> bytes:
        """Return up to `max_bytes` from the end of stderr. Raises HostError."""
        tail = await self.stderr_tail()
        if len(tail) < STDERR_TAIL_BYTES:
            return tail
        host = self._context.hosts.get(self._attempt.host)
        return await read_stderr_tail(host.host, host.spool(self._attempt.spool_id), max_bytes)

    async def remove_spool(self) -> None:
        """Remove the attempt's spool from its host, once the agent has exited. Raises HostError."""
        assert self._follower is not None  # noqa: S101 - the agent has exited
        await self._follower.remove_spool()

    async def close(self) -> None:
        """Detach from the host; no queries follow."""
        if self._follower is not None:
            await self._follower.detach()

    def redacted(self, data: bytes) -> str:
        """Return data of this attempt as text, with its secrets redacted."""
        return self.redactor.line(data).decode(errors="replace")

    @contextlib.asynccontextmanager
    async def _attached(self, follower: Follower) -> AsyncIterator[None]:
        try:
            await follower.__aenter__()
        except ValueError as error:
            raise errors.InvalidRequest(str(error)) from error
        self._reached = follower.attached
        if self._reached:
            self._metrics.attached()
        self._watch.attached(self._context.moment())
        if self._live is not None and self._reached:
            self._live.begin(follower)
        yield

    def _lease(self) -> Lease:
        """Return the terms of the host's lease.

        If the turn may be given up as lost, we renew the lease only while our claim is certain.
        """
        waits = self._claim.request.on_host_lost == "same_host"
        may_hold = (lambda: True) if waits else self._held
        return Lease(
            self._hold.lease_s,
            self._hold.beat_s,
            may_start=self._held,
            starting=self._starting,
            may_hold=may_hold,
            waits_for_room=RoomWait(self._context, self._claim, self._attempt, self._watch),
            epoch=self._claim.epoch,
        )

    def _patience(self) -> Patience:
        """Return how long to try an unreachable host at a stretch: as long as an agent may live there."""
        as_long_as_it_lives_s = enter_s = self._hold.lease_s + ANSWER_S
        if self._attempt.unreachable_since is not None:
            enter_s = _SECOND_LOOK_S
        elif not self._attempt.start_sent:
            enter_s = _FIRST_LOOK_S
        return Patience(answer_s=ANSWER_S, enter_s=enter_s, give_up_s=as_long_as_it_lives_s)

    def _office(self) -> Office:
        return Office(
            refusal=self.ending.refusal,
            remaining_tokens=self._remaining_tokens,
            ask=self.talk.ask,
            opened=self.talk.open,
            failed=self.ending.stop,
            said=self._said,
        )

    def _remaining_tokens(self) -> int | None:
        limit = self._claim.request.max_total_tokens
        return None if limit is None else max(0, limit - self.state.seen_tokens.total)

    async def _said(self) -> Sequence[bytes]:
        """Return the input that a live turn's agent has received. Raises HostError."""
        assert self._follower is not None and self._host is not None  # noqa: S101 - it is attached
        if self._follower.said is None:
            return ()
        if self._command is not None and self._claim.open is None:
            return _lines(self._command.stdin)  # we started this attempt ourselves
        return _lines(await read_input(self._host.host, self._host.spool(self._attempt.spool_id)))


def _lines(data: bytes) -> list[bytes]:
    """Split into complete lines without their newlines; a carriage return ends no line."""
    return data.split(b"\n")[:-1]


def _refusal(adapter: Adapter, registry: Registry) -> str | None:
    """Return why this agent takes no requests while it runs; None: it does."""
    if adapter.capabilities.live:
        return None
    live = ", ".join(other.name for other in registry if other.capabilities.live)
    instead = f", or use an agent that takes requests: {live}" if live else ""
    return f"agent {adapter.name} takes no requests while it runs; cancel the turn (runturn cancel){instead}"
