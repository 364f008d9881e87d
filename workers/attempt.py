"""One attempt, followed: from its first line, or from where another worker left it, to its exit."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from adapters import errors
from adapters.command import Command
from adapters.contract import Adapter
from adapters.errors import TurnError
from adapters.events import HEARTBEAT, ApiRetry
from adapters.fold import TurnState, fold
from ops.ledger import Attempt, Claim
from ops.redaction import Redactor
from remote.backoff import Patience
from remote.errors import LineTooLong
from remote.follower import Follower, Lease, follow
from remote.spool import Batch, Exit
from remote.upkeep import STDERR_TAIL_BYTES, read_stderr_tail
from workers.equipment import Equipment
from workers.fencing import ANSWER_S, Hold
from workers.hosts import TurnHost
from workers.lifecycle import AnyEvent, AttemptStarted
from workers.limits import Limits, Watch
from workers.patience import Detached
from workers.tally import Tally

_CHECK_S = 0.5  # how often limits are looked at
_FROZEN_S = 5.0  # between two looks: this process, or its machine, was stopped meanwhile
_FIRST_LOOK_S = 30.0  # how long a host is tried that nothing was started on yet
_SECOND_LOOK_S = 10.0  # and one that was out of reach the last time


@dataclass(frozen=True, slots=True)
class Ended:
    """An attempt that is over."""

    exit: Exit
    asked: TurnError | None  # why we ended it; None: it ended by itself


class AttemptRun:
    """Follows one attempt. `stop` and `detach` may be called at any time from the same loop."""

    def __init__(
        self,
        equipment: Equipment,
        claim: Claim,
        attempt: Attempt,
        adapter: Adapter,
        redactor: Redactor,
        held: Callable[[], bool],
    ) -> None:
        """`held` says whether the claim is ours for certain."""
        self.state = TurnState(expects_output=claim.request.output_schema is not None, resumed=attempt.resume)
        self.next_seq = attempt.first_seq
        self._equipment = equipment
        self._claim = claim
        self._attempt = attempt
        self._adapter = adapter
        self._parser = adapter.parser()
        self._redactor = redactor
        self._held = held
        self._hold = Hold.on(attempt, equipment.settings.agent)
        own_cap = adapter.capabilities.cost_cap
        limits = Limits.of(claim.request, equipment.settings.agent, caps_cost_itself=own_cap)
        self._watch = Watch(limits, attempt.started_at, equipment.clock())
        self._follower: Follower | None = None
        self._reached = False
        self._asked: TurnError | None = None
        self._detaching = False
        self._stopping: asyncio.Task[None] | None = None
        self._stderr_tail: bytes | None = None
        self._tally = Tally(equipment, claim, attempt)

    @property
    def why(self) -> TurnError | None:
        """Why the agent is to end."""
        return self._asked

    @property
    def over(self) -> bool:
        """Whether the host has told of its end."""
        return self._follower is not None and self._follower.exit is not None

    @property
    def heard(self) -> bool:
        """Whether the host has heard of us since: it was attached to, or may have been told to start the agent."""
        return self._reached or (self._follower is not None and self._follower.asked)

    @property
    def idle_s(self) -> float:
        """For how long the agent has said nothing; 0 while its host is not attached to, or it has ended."""
        follower = self._follower
        if follower is None or not follower.attached or follower.exit is not None:
            return 0.0
        return self._watch.silence_s(self._equipment.clock())

    @property
    def out_of_reach_s(self) -> float:
        """For how many seconds the host has not been attached to."""
        return self._follower.out_of_reach_s if self._follower is not None else 0.0

    async def run(self, host: TurnHost, command: Command | None) -> Ended:
        """Start the agent unless it is there already (`command` None: it must be), and follow it to its end.

        Its channel stays open then, for what is asked after the end: until `close`.
        Raises Detached; TurnError when there is nothing to follow, because of a command that no shell could run or
        because it was told to stop before the host had heard of it; and `remote.errors.HostError` for a host that
        refuses or stays away.
        """
        self._emit([AttemptStarted(self._attempt.attempt, self._claim.request.agent, self._attempt.host)])
        self._tally.launcher = host.launcher
        follower = self._follower = follow(
            host.host,
            host.spool(self._attempt.spool_id),
            command,
            workspace_roots=host.workspace_roots,
            lease=self._lease(),
            patience=self._patience(),
        )
        self._pass_on()  # what was asked before
        try:
            async with self._checking_limits(), self._attached(follower):
                await self._read(follower)
        finally:
            if follower.exit is None:
                await follower.detach()
        if follower.exit is None:
            if self._asked is not None and self._never_started(follower):
                raise self._asked
            raise Detached
        self._tally.ended(follower.exit)
        return Ended(follower.exit, self._asked or self._asked_before(follower.exit))

    def stop(self, why: TurnError) -> None:
        """Have the agent ended; the first reason stands."""
        if self._asked is None:
            self._asked = why
            self._pass_on()

    def detach(self) -> None:
        """Leave the agent to the next worker."""
        self._detaching = True
        self._pass_on()

    async def stderr_tail(self) -> bytes:
        """The end of what the agent wrote to stderr, after its end. Raises HostError."""
        assert self._follower is not None  # noqa: S101 - there was an end
        if self._stderr_tail is None:
            self._stderr_tail = await self._follower.stderr_tail()
        return self._stderr_tail

    async def stderr(self, max_bytes: int) -> bytes:
        """More of it, if there is more. Raises HostError."""
        tail = await self.stderr_tail()
        if len(tail) < STDERR_TAIL_BYTES:
            return tail
        host = self._equipment.hosts.get(self._attempt.host)
        return await read_stderr_tail(host.host, host.spool(self._attempt.spool_id), max_bytes)

    async def remove_spool(self) -> None:
        """Remove what its host keeps of it, after its end. Raises HostError."""
        assert self._follower is not None  # noqa: S101 - there was an end
        await self._follower.remove_spool()

    async def close(self) -> None:
        """Nothing more is asked."""
        if self._follower is not None:
            await self._follower.detach()

    def redacted(self, data: bytes) -> str:
        """Text of this attempt without its secrets."""
        return self._redactor.line(data).decode(errors="replace")

    @contextlib.asynccontextmanager
    async def _attached(self, follower: Follower) -> AsyncIterator[None]:
        try:
            await follower.__aenter__()
        except ValueError as error:
            raise errors.InvalidRequest(str(error)) from error
        self._reached = follower.attached
        if self._reached:
            self._tally.attached()
        self._watch.attached(self._equipment.clock())
        yield

    def _lease(self) -> Lease:
        """How the turn is held. Where it may be given up for lost, only while nobody else can think it is."""
        waits = self._claim.request.on_host_lost == "same_host"
        may_hold = (lambda: True) if waits else self._held
        return Lease(self._hold.lease_s, self._hold.beat_s, may_start=self._held, may_hold=may_hold)

    def _patience(self) -> Patience:
        """How long a host out of reach is tried at a stretch: as long as an agent may live there."""
        as_long_as_it_lives_s = enter_s = self._hold.lease_s + ANSWER_S
        if self._attempt.unreachable_since is not None:
            enter_s = _SECOND_LOOK_S
        elif self._claim.open is None:
            enter_s = _FIRST_LOOK_S
        return Patience(answer_s=ANSWER_S, enter_s=enter_s, give_up_s=as_long_as_it_lives_s)

    async def _read(self, follower: Follower) -> None:
        try:
            async for batch in follower:
                self._tally.links_lost(follower.reattachments)
                self._take(batch)
        except LineTooLong:
            await follower.cancel()  # nobody can read on
            raise

    def _pass_on(self) -> None:
        """Tell the follower what was asked; calls into it are bounded and never raise."""
        if self._follower is None:
            return
        if self._detaching or (self._asked is not None and self._never_started(self._follower)):
            self._stopping = asyncio.create_task(self._follower.detach())
        elif self._asked is not None:
            self._stopping = asyncio.create_task(self._follower.cancel())

    def _never_started(self, follower: Follower) -> bool:
        """Whether the host has not heard of this attempt: there is nothing to be ended."""
        return self._claim.open is None and not follower.asked

    def _take(self, batch: Batch) -> None:
        lines = [self._redactor.line(line) for line in batch.lines if line]
        # Of lines that were printed before we looked, nobody knows when.
        at = None if batch.replayed else self._equipment.monotonic()
        happened = fold(self._parser, self.state, lines, at)
        self._tally.saw(happened, replayed=batch.replayed)
        if any(type(event) is not ApiRetry for event in happened):
            self._watch.alive(self._equipment.clock())
        self._watch.spent(self.state.seen_tokens.total, self._known_cost_usd())
        self._emit([event for event in happened if event is not HEARTBEAT])

    def _known_cost_usd(self) -> float:
        price = self._adapter.price
        return sum(price(model, tokens) or 0.0 for model, tokens in self.state.seen.items())

    def _emit(self, events: Sequence[AnyEvent]) -> None:
        if events:
            self._equipment.pump.emit(self._claim, self.next_seq, events, self._equipment.clock())
            self.next_seq += len(events)

    @contextlib.asynccontextmanager
    async def _checking_limits(self) -> AsyncIterator[None]:
        checks = asyncio.create_task(self._check_limits())
        try:
            yield
        finally:
            checks.cancel()

    async def _check_limits(self) -> None:
        # Most of the time nothing happens; that is what is looked for.
        looked_at = self._equipment.clock()
        while (reached := self._watch.exceeded(looked_at)) is None:
            await asyncio.sleep(_CHECK_S)
            now = self._equipment.clock()
            cut_off = self._follower is not None and not self._follower.attached
            if cut_off or now - looked_at > _FROZEN_S:
                self._watch.woken(now)
            looked_at = now
        self.stop(reached)

    def _asked_before(self, end: Exit) -> TurnError | None:
        """Why an earlier worker had the agent ended: it did not live to say so."""
        if end.reason != "cancel":
            return None
        if self._claim.cancel_requested:
            return errors.TurnCancelled()
        return self._watch.exceeded(self._equipment.clock()) or self._watch.fell_silent()
