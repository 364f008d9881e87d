"""Keeps the claims of a worker's turns, passes cancels on to them, and brings parked and orphaned turns back."""

from __future__ import annotations

import asyncio
import os
import platform
import threading
import time
import uuid
from collections.abc import Callable

import structlog
from kombu.exceptions import OperationalError

from ops.errors import LedgerUnavailable
from ops.ledger import Due, Ledger
from workers.fencing import OWNER_TTL_S
from workers.run import RunOutcome, TurnRun

_PERIOD_S = 1.0

log = structlog.get_logger(__name__)


class Keeper:
    """Its thread talks to the ledger once a second; turns are touched on their loop only."""

    def __init__(
        self,
        ledger: Ledger,
        requeue: Callable[[str], None],
        clock: Callable[[], float],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.owner = f"{platform.node()}.{os.getpid()}.{uuid.uuid4().hex[:8]}"
        self._ledger = ledger
        self._requeue = requeue
        self._clock = clock
        self._monotonic = monotonic
        self._runs: dict[str, TurnRun] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._leaving = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="keeper", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._stopping.set()
        self._thread.join(timeout=5)

    async def work(self, run: TurnRun) -> RunOutcome:
        """Run a turn while its claim is kept."""
        self._loop = asyncio.get_running_loop()
        former = self._runs.get(run.claim.turn_id)
        if former is not None:
            former.lose()  # this worker was frozen, its claim was given away, and it is the one that got it
        self._runs[run.claim.turn_id] = run
        if self._leaving:
            run.leave()
        try:
            return await run.run()
        finally:
            if self._runs.get(run.claim.turn_id) is run:
                del self._runs[run.claim.turn_id]

    def leave_all(self) -> None:
        """Detach from all turns; to be called on their loop."""
        self._leaving = True
        if self._runs:
            log.info(
                "running turns are left to the next worker; without one, their leases end them",
                turns=len(self._runs),
            )
        for run in list(self._runs.values()):
            run.leave()

    def _run(self) -> None:
        while not self._stopping.wait(_PERIOD_S):
            try:
                self._renew()
                self._bring_back()
            except (LedgerUnavailable, OperationalError) as error:
                log.warning("ledger or broker do not answer", error=str(error))
            except Exception:
                log.exception("keeping claims failed")  # without this thread, this worker would lose all its turns

    def _renew(self) -> None:
        runs = list(self._runs.values())
        held_until = self._monotonic() + OWNER_TTL_S
        renewal = self._ledger.renew([run.claim for run in runs], self._clock(), OWNER_TTL_S)
        for run in runs:
            assert self._loop is not None  # noqa: S101  # it carries these runs
            if run.claim.turn_id not in renewal.held:
                self._loop.call_soon_threadsafe(run.lose)
                continue
            self._loop.call_soon_threadsafe(run.renewed, held_until)
            if run.claim.turn_id in renewal.cancelled:
                self._loop.call_soon_threadsafe(run.cancel)

    def _bring_back(self) -> None:
        now = self._clock()
        for due in self._ledger.due(now):
            try:
                self._send(due)
            except ValueError:  # a request that only a newer runturn can read must not hold up the others
                log.exception("a turn cannot come back", turn_id=due.turn_id)
            self._ledger.requeued(due, now)

    def _send(self, due: Due) -> None:
        log.info("a turn comes back", turn_id=due.turn_id)
        self._requeue(due.turn_id)
