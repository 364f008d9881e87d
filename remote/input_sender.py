"""The part of a follower that tells its turn something, over whichever attachment there is."""

from __future__ import annotations

import asyncio
import contextlib

from remote.attachment import Attachment
from remote.errors import HostUnreachable
from remote.input_buffer import InputBuffer, check_line


class InputSender:
    """Has each line said once and in order, and all of it told again to an attachment that may lack it."""

    def __init__(self) -> None:
        self.said: int | None = None  # lines of the input when first attached; None: not live, or not attached yet
        self._attachment: Attachment | None = None
        self._input = InputBuffer()
        self._live: bool | None = None  # None: not attached yet
        self._telling: set[asyncio.Task[None]] = set()

    async def send(self, line: bytes) -> None:
        """Say a line, without its newline, to the agent of a live turn; in the order of the calls, and once.

        Returns once it is on its way; without a channel at the moment, the next attachment sends it. May be called
        before the first one. Raises ValueError for what is no line, and for a turn that is not live.
        """
        if self._live is False:
            raise ValueError("this turn is not live: its agent reads no more than its prompt")
        self._input.say(line)
        await self._tell()

    async def end_input(self) -> None:
        """Nothing more will be sent: the agent reads the end of its input behind what was sent. As `send`."""
        self._input.ended = True
        await self._tell()

    async def soft_stop(self, text: bytes) -> None:
        """Put `text`, one line, into the spool's file `stop`, for an agent that looks there. As `send`."""
        check_line(text)
        self._input.stop = text
        await self._tell()

    def _heard(self, said: int | None) -> None:
        """A new attachment has told how many lines were said; None: the turn is not live."""
        self._live = said is not None
        if said is not None:
            self._input.arrived(said)
            self.said = said if self.said is None else self.said

    async def _tell(self) -> None:
        # Goes on when whoever waits for it is cancelled.
        await asyncio.shield(self._start_telling())

    def _start_telling(self) -> asyncio.Task[None]:
        task = asyncio.create_task(self._tell_host())
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)
        return task

    async def _tell_host(self) -> None:
        if self._attachment is not None:
            with contextlib.suppress(HostUnreachable):  # the next attachment tells it again
                await self._attachment.tell(self._input)
