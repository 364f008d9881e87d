"""Waiting for turns to finish, on one event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterable

from ops.errors import LedgerError

_POLL_S = 1.0  # between checks, unless an end is reported


class ResultWaiter:
    """Waits for any number of turns to finish: one task asks the ledger about all of them at once."""

    def __init__(self, settled: Callable[[Collection[str]], Awaitable[frozenset[str]]]) -> None:
        self._settled = settled
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def look(self) -> None:
        """Check now."""
        self._wake.set()

    async def of(self, turn_id: str) -> None:
        """Wait until the turn is settled."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(turn_id, set()).add(future)
        self.look()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        try:
            await future
        finally:
            self._leave(turn_id, future)

    def close(self) -> None:
        """Cancel all waits."""
        if self._task is not None:
            self._task.cancel()
        for future in [each for waiting in self._waiting.values() for each in waiting]:
            future.cancel()

    def _leave(self, turn_id: str, future: asyncio.Future[None]) -> None:
        waiting = self._waiting.get(turn_id, set())
        waiting.discard(future)
        if not waiting:
            self._waiting.pop(turn_id, None)

    async def _run(self) -> None:
        while self._waiting:
            self._wake.clear()
            asked = tuple(self._waiting)
            try:
                self._tell(await self._settled(asked), None)
            except LedgerError as error:
                self._tell(asked, error)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), _POLL_S)

    def _tell(self, turn_ids: Iterable[str], error: LedgerError | None) -> None:
        for future in [each for turn_id in turn_ids for each in self._waiting.get(turn_id, ())]:
            if future.done():
                continue
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)
