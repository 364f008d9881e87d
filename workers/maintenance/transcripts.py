"""Archives the transcripts of settled turns.

The worker that settles a turn writes its transcript right after, in parallel with all other work: an archive that
is down or hangs delays nothing. The ledger records which turns have none yet, so in its rounds, any worker finds
what a killed worker or an archive outage left undone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

import structlog

from ops.errors import ArchiveUnavailable, LedgerUnavailable
from ops.logs import turn_logging
from ops.transcripts import Archive, compose
from remote.daemon_threads import DaemonExecutor
from workers.context import WorkerContext

_ROUND_S = 30.0
_AGE_S = 60.0  # of a settled turn whose worker should have written its transcript
_CLEAN_S = 3600.0
_PATIENCE_S = 60.0  # for one call to the archive
_FRESH = 1_000  # turns; any more are found in a round
_PAGE = 100

T = TypeVar("T")
log = structlog.get_logger(__name__)


class TranscriptArchiver:
    """Archiver of one worker. Use on one loop."""

    def __init__(self, context: WorkerContext, archive: Archive) -> None:
        self._context = context
        self._ledger = context.ledger
        self._archive = archive
        self._thread = DaemonExecutor(1, "transcripts")  # separate, as the archive may hang
        self._in_hand: Future[Any] | None = None
        self._fresh: deque[str] = deque(maxlen=_FRESH)
        self._nudged = asyncio.Event()
        self._away = False

    def settled(self, turn_id: str) -> None:
        """Queue a turn that was settled here; return at once."""
        if not self._away:
            self._fresh.append(turn_id)
            self._nudged.set()

    async def run(self) -> None:
        """Archive transcripts, until cancelled."""
        context = self._context
        # All workers of a fleet may have been started at once.
        next_round = context.monotonic() + context.rng.uniform(0.0, _ROUND_S)
        next_cleaning = context.monotonic() + context.rng.uniform(0.0, _CLEAN_S)
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._nudged.wait(), max(0.0, next_round - context.monotonic()))
            self._nudged.clear()
            await self._quietly(self._write_fresh)
            if context.monotonic() >= next_round:
                await self._quietly(self.make_round)
                next_round = context.monotonic() + _ROUND_S * context.rng.uniform(0.5, 1.5)
            if context.monotonic() >= next_cleaning:
                await self._quietly(self.clean)
                next_cleaning = context.monotonic() + _CLEAN_S * context.rng.uniform(0.5, 1.5)

    async def make_round(self) -> None:
        """Write transcripts that others left undone. Raises ArchiveUnavailable, LedgerUnavailable."""
        settled_before, after = self._context.clock() - _AGE_S, (0.0, "")
        while page := await asyncio.to_thread(self._ledger.transcripts.unarchived, settled_before, after, _PAGE):
            after = page[-1]
            turn_ids = [turn_id for _, turn_id in page]
            self._context.rng.shuffle(turn_ids)  # others may be writing the same ones
            await self._write(turn_ids)
        self._away = False

    async def clean(self) -> None:
        """Remove transcripts past their retention. Raises ArchiveUnavailable."""
        retention_s = self._context.settings.transcripts_retention_ms / 1000
        if days := await self._call(lambda: self._archive.remove_before(self._context.clock() - retention_s)):
            log.info("old transcripts removed", days=days)

    async def _write_fresh(self) -> None:
        while self._fresh:
            await self._write([self._fresh.popleft()])

    async def _write(self, turn_ids: Iterable[str]) -> None:
        """Write transcripts. Raise ArchiveUnavailable or LedgerUnavailable at once: the rest would fail too."""
        for turn_id in turn_ids:
            with turn_logging(turn_id):
                try:
                    await self._call(partial(self._store, turn_id))
                except (ArchiveUnavailable, LedgerUnavailable):
                    raise
                except Exception:
                    log.exception("writing a transcript failed")  # must not hold up the others

    def _store(self, turn_id: str) -> None:
        source = self._ledger.transcripts.source(turn_id)
        if source is not None:
            if source.events:
                self._archive.write(turn_id, source.settled_at, compose(source))
            self._ledger.transcripts.archived(turn_id, self._context.clock())

    async def _call(self, operation: Callable[[], T]) -> T:
        """Call the archive. Raise ArchiveUnavailable also if it does not answer; the thread may keep hanging."""
        if self._in_hand is not None and not self._in_hand.done():
            raise ArchiveUnavailable(f"transcripts at {self._archive.name}: still no answer to the last call")
        self._in_hand = future = self._thread.submit(operation)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), _PATIENCE_S)
        except TimeoutError:
            text = f"transcripts at {self._archive.name}: no answer for {_PATIENCE_S:.0f} s"
            raise ArchiveUnavailable(text) from None

    async def _quietly(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except ArchiveUnavailable as error:
            log.warning("transcripts are waiting for the archive", error=str(error))
            self._away = True  # until a round succeeds
            self._fresh.clear()
        except LedgerUnavailable as error:
            log.warning("transcripts are waiting for the ledger", error=str(error))
        except Exception:
            log.exception("archiving transcripts failed")  # the next time may succeed
