"""Following a turn: its output from any offset to its end, over as many channels as needed."""

from __future__ import annotations

import asyncio
import contextlib
import math
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from random import Random
from types import TracebackType
from typing import Self

from adapters.command import Command
from remote.attachment import Attachment, Heartbeats, StartWithheld, attach
from remote.backoff import Backoff, Patience
from remote.containment import AS_USUAL, Containment
from remote.errors import HostUnreachable, SpawnRefused
from remote.framing import MAX_LINE_BYTES
from remote.host import Host
from remote.host_queries import read_stderr_tail, remove_spool
from remote.input_sender import InputSender
from remote.programs import Attach, Request, start_request
from remote.spool import Batch, Exit, Spool

_PERMIT_S = 0.5  # between two checks whether a start is permitted
_ROOM_S = 3.0  # between two starts on a full disk


def _always() -> bool:
    return True


async def _nothing() -> None:
    pass


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Lease:
    """Lease settings of a turn."""

    lease_s: int = 90  # the host terminates the turn after this long without a heartbeat
    beat_s: float = 10.0  # between two heartbeats
    may_start: Callable[[], bool] = _always  # nothing is started while this returns False
    starting: Callable[[], Awaitable[None]] = _nothing  # awaited before the host is told to start; may raise
    may_hold: Callable[[], bool] = _always  # no heartbeat is sent while this returns False
    waits_for_room: Callable[[], bool] = _never  # on a full disk: whether to start again in a moment
    epoch: int = 0  # of the claim: input from followers with a lower epoch than another's is ignored

    def __post_init__(self) -> None:
        if self.lease_s < 1 or self.beat_s >= self.lease_s:
            raise ValueError(f"a lease of {self.lease_s} s cannot be held by a heartbeat every {self.beat_s} s")


class Follower(InputSender):
    """An attachment to a turn that survives the loss of its channels.

        async with Follower(host, spool, command) as turn:
            async for batch in turn:
                ...
        turn.exit

    It follows the turn in `spool` from byte `offset` of its output, after starting `command` there if given. A
    command whose spool exists was started before and is not started again; with a command, the offset is 0. Its
    `forward_env` is ignored: the caller, who knows the worker's environment, has put it into `env`. If there are
    `workspace_roots`, the command is started in or below one of these directories, or not at all. It is
    contained as `containment` says.

    Entering attaches. Leaving detaches: the turn keeps running, and its host terminates it when its lease expires.
    Entering and iterating raise HostUnreachable after `patience.give_up_s` seconds without the host, and any other
    HostError at once; only a full disk is waited for, as long as the lease says. Waiting for a batch may be
    cancelled and restarted without loss. `detach` takes effect at any time, even while entering; no batches
    follow. Entering raises ValueError for a command that no shell could run as intended.
    """

    def __init__(
        self,
        host: Host,
        spool: Spool,
        command: Command | None = None,
        *,
        offset: int = 0,
        workspace_roots: Sequence[str] = (),
        containment: Containment = AS_USUAL,
        lease: Lease = Lease(),
        patience: Patience = Patience(),  # noqa: B008 - immutable
        max_line: int = MAX_LINE_BYTES,
        rng: Random | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        if command and offset:
            raise ValueError(
                "a command is started at offset 0; to continue from another offset, attach without a command"
            )
        if not spool.seal:
            raise ValueError("a turn is followed with the seal of its spool")
        super().__init__()
        self.exit: Exit | None = None  # set with the last batch; None after a detach
        self.reattachments = 0  # how often it attached again after losing its channel
        self.asked = False  # the host was asked to start the command: it may run, whatever the answer
        self._host = host
        self._spool = spool
        self._command = command  # None once it has certainly started
        self._offset = offset
        self._workspace_roots = tuple(workspace_roots)
        self._containment = containment
        self._lease = lease
        self._patience = patience
        self._max_line = max_line
        self._backoff = Backoff(patience, rng or Random(), clock)  # noqa: S311 - jitter is no secret
        self._clock = clock
        self._sleep = sleep
        self._name = secrets.token_hex(8)
        self._batches: deque[Batch] = deque()
        self._cancelled = False
        self._detached = asyncio.Event()
        self._lost_at: float | None = None
        self._was_attached = False

    @property
    def attached(self) -> bool:
        """Return True while there is a channel to the turn."""
        return self._attachment is not None

    @property
    def detached(self) -> bool:
        """Return True once `detach` was called."""
        return self._detached.is_set()

    @property
    def out_of_reach_s(self) -> float:
        """Return the seconds for which nothing of ours can have reached the host; 0 while attached."""
        return 0.0 if self._lost_at is None else self._clock() - self._lost_at

    async def __aenter__(self) -> Self:
        try:
            await self._attach()
        except BaseException:
            await self.detach()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.detach()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Batch:
        while not self._batches:
            if self.exit or self._detached.is_set():
                raise StopAsyncIteration
            if self._attachment is None:
                await self._attach()
            else:
                await self._receive(self._attachment)
        return self._batches.popleft()

    async def cancel(self) -> None:
        """Terminate the turn by its command's stop ladder. Keep reading: more output may follow.

        If there is no channel, the next attachment requests it.
        """
        self._cancelled = True
        if self._attachment:
            with contextlib.suppress(HostUnreachable):  # the next attachment asks again
                await self._attachment.cancel()

    async def stderr_tail(self) -> bytes:
        """Return the end of the agent's stderr, at most 64 KiB, after the turn has finished.

        Like `remove_spool`, use the existing channel, or a new one if that is lost. Raise HostError.
        """
        if self._attachment is not None:
            with contextlib.suppress(HostUnreachable):
                return await self._attachment.stderr_tail()
            await self._drop()
        return await read_stderr_tail(self._host, self._spool)

    async def remove_spool(self) -> None:
        """Remove the spool after the turn has finished; detach. Raise HostError; SpawnRefused (spool_in_use)."""
        attachment = self._attachment
        if attachment is not None:
            try:
                await attachment.remove_spool()
            except HostUnreachable:
                attachment = None
            finally:
                await self._drop()
        if attachment is None:
            await remove_spool(self._host, self._spool)

    async def detach(self) -> None:
        """Stop following. The turn keeps running."""
        self._detached.set()
        await self._drop()

    async def _receive(self, attachment: Attachment) -> None:
        try:
            self._batches.extend(await attachment.read())
        except HostUnreachable as loss:
            self._lost_at = self._clock()
            await self._drop()
            if not self._detached.is_set():
                await self._pause(self._backoff.delay_s(loss))
            return
        self._offset = attachment.offset
        self._backoff.progressed()
        self.exit = attachment.exit

    async def _attach(self) -> None:
        """Attach, in as many tries as needed, unless detached."""
        while self._attachment is None and not self._detached.is_set():
            if self._command and not self._lease.may_start():
                await self._pause(_PERMIT_S)
                continue
            try:
                await self._unless_detached(self._open())
            except StartWithheld:
                continue
            except SpawnRefused as refusal:
                if refusal.code != "spool_full" or self._cancelled or not self._lease.waits_for_room():
                    raise
                await self._pause(min(_ROOM_S, self._patience.longest_delay_s))
            except HostUnreachable as loss:
                if self._lost_at is None:
                    self._lost_at = self._clock()
                await self._pause(self._backoff.delay_s(loss))
        if self._detached.is_set():
            await self._drop()
            return
        if self._cancelled:
            await self.cancel()
        self._start_telling()

    async def _open(self) -> None:
        nonce, stale_s = secrets.token_hex(16), math.ceil(self._patience.answer_s)
        terms = Attach(self._spool, self._name, nonce, self._offset, stale_s, self._lease.epoch)
        request = self._request(terms)
        channel = await self._host.open_channel()
        # Assign at once: the caller may be cancelled at the same moment.
        self._attachment = await attach(
            self._host,
            channel,
            terms,
            request,
            may_start=self._may_start,
            answer_s=self._patience.answer_s,
            beats=Heartbeats(self._lease.beat_s, self._lease.may_hold, self._clock),
            max_line=self._max_line,
        )
        self._heard(self._attachment.said)
        self._lost_at = None
        self.reattachments += self._was_attached
        self._was_attached = True
        self._command = None
        self._backoff.attached()

    async def _may_start(self) -> bool:
        if self._detached.is_set() or not self._lease.may_start():
            return False
        await self._lease.starting()
        self.asked = True
        self._lost_at = None  # what is sent now may arrive, even if no answer comes back
        return True

    def _request(self, attach: Attach) -> Request:
        command, path = self._command, self._host.path
        if command is None:
            return attach.request(path)
        lease_s, roots = self._lease.lease_s, self._workspace_roots
        return start_request(
            attach, command, lease_s, workspace_roots=roots, path=path, containment=self._containment
        )

    async def _pause(self, seconds: float) -> None:
        await self._unless_detached(self._sleep(seconds))

    async def _unless_detached(self, work: Awaitable[None]) -> None:
        """Wait for `work`; cancel it on detach."""
        task, detached = asyncio.ensure_future(work), asyncio.create_task(self._detached.wait())
        try:
            await asyncio.wait((task, detached), return_when=asyncio.FIRST_COMPLETED)
        finally:
            detached.cancel()
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        if not task.cancelled():
            task.result()  # raises its exception, if any

    async def _drop(self) -> None:
        attachment, self._attachment = self._attachment, None
        if attachment:
            await attachment.close()
