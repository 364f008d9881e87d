"""Following a turn: its output from any offset to its end, over as many channels as that takes."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from types import TracebackType
from typing import Self

from adapters.command import Command
from remote.attachment import Attachment, open_attachment
from remote.backoff import Backoff, Patience
from remote.errors import HostUnreachable
from remote.framing import MAX_LINE_BYTES
from remote.host import Host
from remote.spool import Batch, Exit, Spool
from remote.turn import Attach, start_program


@dataclass(frozen=True, slots=True)
class Lease:
    """How a turn is held."""

    lease_s: int = 90  # without a heartbeat for so long, the host ends the turn
    beat_s: float = 10.0  # between two heartbeats

    def __post_init__(self) -> None:
        if self.lease_s < 1 or self.beat_s >= self.lease_s:
            raise ValueError(f"a lease of {self.lease_s} s cannot be held by a heartbeat every {self.beat_s} s")


def follow(
    host: Host,
    spool: Spool,
    command: Command | None = None,
    *,
    offset: int = 0,
    lease: Lease = Lease(),
    patience: Patience = Patience(),  # noqa: B008 - immutable
    max_line: int = MAX_LINE_BYTES,
    rng: Random | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> Follower:
    """Follow the turn in `spool` from byte `offset` of its output, after starting `command` there if one is given.

    A command whose spool exists was started before and is not started again; with one, the offset is 0. Its
    `forward_env` is not looked at: the caller, who knows the worker's environment, has put it into `env`.
    See Follower for use and errors; entering raises ValueError for a command that a shell could not run as meant.
    """
    if command and offset:
        raise ValueError("a start begins at offset 0; attach without a command to go on elsewhere")
    backoff = Backoff(patience, rng or Random(), clock)  # noqa: S311 - jitter is no secret
    return Follower(host, spool, command, offset, lease, patience, max_line, backoff, sleep)


class Follower:
    """An attachment to a turn that survives the loss of its channels.

        async with follow(host, spool, command) as turn:
            async for batch in turn:
                ...
        turn.exit

    Entering attaches. Leaving detaches: the turn goes on, and its host ends it when its lease runs out.
    Entering and the next batch raise HostUnreachable after `patience.give_up_s` seconds without the host, and
    SpawnRefused and LineTooLong at once. Waiting for a batch may be cancelled and begun again without loss.
    """

    def __init__(
        self,
        host: Host,
        spool: Spool,
        command: Command | None,
        offset: int,
        lease: Lease,
        patience: Patience,
        max_line: int,
        backoff: Backoff,
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self.exit: Exit | None = None  # set with the last batch; None after a detach
        self._host = host
        self._spool = spool
        self._command = command  # None once it is known to have started
        self._offset = offset
        self._lease = lease
        self._patience = patience
        self._max_line = max_line
        self._backoff = backoff
        self._sleep = sleep
        self._name = secrets.token_hex(8)
        self._turn_nonce = secrets.token_hex(16)
        self._attachment: Attachment | None = None
        self._batches: deque[Batch] = deque()
        self._cancelled = False
        self._detached = False

    async def __aenter__(self) -> Self:
        await self._attach()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.detach()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Batch:
        while not self._batches:
            if self.exit or self._detached:
                raise StopAsyncIteration
            await self._receive(self._attachment or await self._attach())
        return self._batches.popleft()

    async def cancel(self) -> None:
        """Have the turn ended by its command's ladder. Go on reading: it may still say something.

        Without a channel at the moment, the next attachment asks for it.
        """
        self._cancelled = True
        if self._attachment:
            with contextlib.suppress(HostUnreachable):  # the next attachment asks again
                await self._attachment.cancel()

    async def detach(self) -> None:
        """Stop following. The turn goes on."""
        self._detached = True
        await self._drop()

    async def _receive(self, attachment: Attachment) -> None:
        try:
            self._batches.extend(await attachment.read())
        except HostUnreachable as loss:
            await self._drop()
            if not self._detached:
                await self._sleep(self._backoff.delay_s(loss))
            return
        self._offset = attachment.offset
        self._backoff.progressed()
        self.exit = attachment.exit

    async def _attach(self) -> Attachment:
        while True:
            try:
                attachment = await self._open()
                break
            except HostUnreachable as loss:
                await self._sleep(self._backoff.delay_s(loss))
        self._command = None
        self._attachment = attachment
        self._backoff.attached()
        if self._cancelled:
            await self.cancel()
        if self._detached:
            await self._drop()
        return attachment

    async def _open(self) -> Attachment:
        nonce = secrets.token_hex(16)
        return await open_attachment(
            self._host,
            self._request(Attach(self._spool, self._name, nonce, self._offset)),
            nonce,
            self._offset,
            answer_s=self._patience.answer_s,
            beat_s=self._lease.beat_s,
            max_line=self._max_line,
        )

    def _request(self, attach: Attach) -> bytes:
        if self._command is None:
            return attach.program()
        return start_program(attach, self._command, self._turn_nonce, self._lease.lease_s) + self._command.stdin

    async def _drop(self) -> None:
        attachment, self._attachment = self._attachment, None
        if attachment:
            await attachment.close()
