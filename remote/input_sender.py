"""The part of a follower that sends input to its turn, over whichever attachment exists."""

from __future__ import annotations

import asyncio
import contextlib

from remote.attachment import Attachment
from remote.errors import HostUnreachable
from remote.input_buffer import InputBuffer, check_line


class InputSender:
    """Sends each line once and in order, and resends whatever a new attachment may lack."""

    def __init__(self) -> None:
        self.said: int | None = None  # input lines at the first attachment; None: not live, or not attached yet
        self._attachment: Attachment | None = None
        self._input = InputBuffer()
        self._live: bool | None = None  # None: not attached yet
        self._telling: set[asyncio.Task[None]] = set()

    async def send(self, line: bytes) -> None:
        """Send a line, without its newline, to the agent of a live turn; once, and in the order of the calls.

        Return once it is on its way; if there is no channel, the next attachment sends it. May be called before
        the first one. Raise ValueError if the line is invalid or the turn is not live.
        """
        if self._live is False:
            raise ValueError("this turn is not live: its agent reads only its prompt")
        self._input.say(line)
        await self._tell()

    async def end_input(self) -> None:
        """End the input: the agent reads its end after what was sent. Otherwise like `send`."""
        self._input.ended = True
        await self._tell()

    async def soft_stop(self, text: bytes) -> None:
        """Write `text`, one line, to the spool's file `stop`, which some agents check. Otherwise like `send`."""
        check_line(text)
        self._input.stop = text
        await self._tell()

    def _heard(self, said: int | None) -> None:
        """Record the line count that a new attachment reported; None: the turn is not live."""
        self._live = said is not None
        if said is not None:
            self._input.arrived(said)
            self.said = said if self.said is None else self.said

    async def _tell(self) -> None:
        # Continues if the caller is cancelled.
        await asyncio.shield(self._start_telling())

    def _start_telling(self) -> asyncio.Task[None]:
        task = asyncio.create_task(self._tell_host())
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)
        return task

    async def _tell_host(self) -> None:
        if self._attachment is not None:
            with contextlib.suppress(HostUnreachable):  # the next attachment sends it again
                await self._attachment.tell(self._input)
