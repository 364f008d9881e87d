"""One attachment to a turn: a channel, from the host's answer to the channel's end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from remote.errors import HostUnreachable, LineTooLong, SpawnRefused
from remote.framing import LineOverflow
from remote.host import Channel, Host
from remote.input_buffer import InputBuffer
from remote.programs import Attach, Request
from remote.spool import Batch, Exit
from remote.stream import Answer, EventStream, Ready, Refused, Removing, StderrTail, Wanted

_AT_ONCE_BYTES = 32_768  # split into lines at a time, of which there may be as many: others share the event loop

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Heartbeats:
    """Heartbeat settings of an attachment."""

    every_s: float
    wanted: Callable[[], bool]  # called before each one
    clock: Callable[[], float] = time.monotonic


async def attach(
    host: Host,
    channel: Channel,
    terms: Attach,
    request: Request,
    *,
    may_start: Callable[[], Awaitable[bool]],
    answer_s: float,
    beats: Heartbeats,
    max_line: int,
) -> Attachment:
    """Send the request for `terms`; return the attachment once the host confirms it. Close the channel otherwise.

    `may_start` is called once, when the host is about to start the request's command; from then on it may run.
    Raise StartWithheld if that returns False, SpawnRefused, or HostUnreachable if the host does not answer within
    `answer_s` seconds.
    """
    try:
        async with asyncio.timeout(answer_s):
            ready, rest = await _handshake(host, channel, request, terms.nonce, may_start)
    except TimeoutError as error:
        await channel.close()
        raise HostUnreachable(host.name, f"no answer for {answer_s} s") from error
    except BaseException:
        await channel.close()
        raise
    stream = EventStream(terms.offset, ready.size, terms.spool.seal, max_line)
    return Attachment(host, channel, terms.nonce, ready.said, stream, rest, beats, answer_s)


class StartWithheld(Exception):
    """The command must not be started at the moment, and was not."""


class Attachment:
    """An attached channel. Its heartbeats renew the turn's lease until it is closed."""

    def __init__(
        self,
        host: Host,
        channel: Channel,
        nonce: str,
        said: int | None,
        stream: EventStream,
        rest: bytes,
        beats: Heartbeats,
        answer_s: float,
    ) -> None:
        self.said = said  # input lines before this attachment; None: the turn is not live
        self._host = host
        self._channel = channel
        self._nonce = nonce
        self._stream = stream
        self._rest = rest  # arrived, but not read yet
        self._answer_s = answer_s
        self._written = said or 0  # number of the last line that need not be written
        self._told_stop: bytes | None = None
        self._told_end = False
        self._writing = asyncio.Lock()  # a long line is written in pieces
        self._beats = asyncio.create_task(self._beat(beats))

    @property
    def offset(self) -> int:
        """Return the offset at which the next attachment must begin."""
        return self._stream.offset

    @property
    def exit(self) -> Exit | None:
        """Return the turn's exit, once its marker was read."""
        return self._stream.exit

    async def read(self) -> list[Batch]:
        """Return the next lines, possibly none. Raise LineTooLong, or HostUnreachable at the channel's end."""
        chunk = await self._chunk()
        try:
            return self._stream.feed(chunk)
        except LineOverflow as error:
            raise LineTooLong(self._host.name, error.offset, error.limit) from error

    async def cancel(self) -> None:
        """Ask the host to terminate the turn. Raise HostUnreachable."""
        await self._write(b"C\n")

    async def tell(self, said: InputBuffer) -> None:
        """Write whatever this attachment has not written yet. Raise HostUnreachable.

        Must not be cancelled: a long line could be partly written.
        """
        async with self._writing:
            if said.stop is not None and said.stop != self._told_stop:
                self._told_stop = said.stop
                await self._channel.write(b"T %b\n" % said.stop)
            if self.said is None:
                return
            while (following := said.after(self._written)) is not None:
                self._written, word = following
                await self._channel.write(word)
            if said.ended and not self._told_end:
                self._told_end = True
                await self._channel.write(b"F\n")

    async def stderr_tail(self) -> bytes:
        """Return the end of the agent's stderr, once the turn has finished. Raise HostUnreachable."""
        return await self._ask(b"E\n", StderrTail(self._nonce).feed)

    async def remove_spool(self) -> None:
        """Remove the spool of a finished turn, and close the attachment.

        Raise HostUnreachable, or SpawnRefused (spool_in_use).
        """
        said = await self._ask(b"R\n", Answer(self._nonce).feed)
        if isinstance(said, Refused):
            raise SpawnRefused(self._host.name, said.code, said.detail)
        assert isinstance(said, Removing)  # noqa: S101 - its other answers belong to a start
        await self.close()  # waits until it is removed

    async def close(self) -> None:
        """Stop the heartbeats and close the channel."""
        self._beats.cancel()
        await self._channel.close()

    async def _ask(self, word: bytes, understood: Callable[[bytes], T | None]) -> T:
        """Send a message and read until the answer is complete."""
        try:
            async with asyncio.timeout(self._answer_s):
                await self._write(word)
                while (said := understood(await self._chunk())) is None:
                    pass
                return said
        except TimeoutError as error:
            raise HostUnreachable(self._host.name, f"no answer for {self._answer_s} s") from error

    async def _write(self, word: bytes) -> None:
        async with self._writing:
            await self._channel.write(word)

    async def _beat(self, beats: Heartbeats) -> None:
        """Send how long ago the host answered, by which it recognizes late heartbeats."""
        answered_at = beats.clock()
        try:
            while True:
                if beats.wanted():
                    await self._write(b"%d\n" % (beats.clock() - answered_at))
                await asyncio.sleep(beats.every_s)
        except HostUnreachable:
            # The host no longer listens; close the channel for its reader, too, who might still receive output.
            await self._channel.close()

    async def _chunk(self) -> bytes:
        chunk = self._rest or await self._channel.read()
        if not chunk:
            raise HostUnreachable(self._host.name, "the channel ended")
        self._rest = chunk[_AT_ONCE_BYTES:]
        return chunk[:_AT_ONCE_BYTES]


async def _handshake(
    host: Host, channel: Channel, request: Request, nonce: str, may_start: Callable[[], Awaitable[bool]]
) -> tuple[Ready, bytes]:
    # Send while reading: a host that refuses does not read all of it.
    sending = asyncio.create_task(channel.write(request.program))
    answer = Answer(nonce)
    try:
        while True:
            chunk = await channel.read()
            if not chunk:
                raise HostUnreachable(host.name, "the channel ended before an answer arrived")
            match answer.feed(chunk):
                case Ready() as ready:
                    return ready, answer.rest
                case Refused(code, detail):
                    raise SpawnRefused(host.name, code, detail)
                case Wanted(what):
                    if what == "go" and not await may_start():
                        raise StartWithheld
                    await sending
                    sending = asyncio.create_task(channel.write(b"go\n" if what == "go" else request.prompt))
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
