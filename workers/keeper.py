"""Keeps the claims of a worker's turns, and passes cancels on to them."""

from __future__ import annotations

import asyncio
import os
import platform
import threading
import time
import uuid
from collections.abc import Callable, Mapping

import structlog

from ops.errors import LedgerUnavailable
from ops.ledger import Ledger
from workers.fencing import OWNER_TTL_S
from workers.run import RunOutcome, TurnRun

_PERIOD_S = 1.0
_ROUND_S = 5.0  # between two rounds of what is less urgent

log = structlog.get_logger(__name__)


class Keeper:
    """Its thread talks to the ledger once a second; turns are touched on their loop only."""

    def __init__(
        self,
        ledger: Ledger,
        hosts: Mapping[str, Mapping[str, str]],
        rounds: Callable[[float], None],
        clock: Callable[[], float],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`hosts` are those that this worker knows, with their labels; `rounds` is called every few seconds."""
        self.owner = f"{platform.node()}.{os.getpid()}.{uuid.uuid4().hex[:8]}"
        self._ledger = ledger
        self._hosts = hosts
        self._rounds = rounds
        self._clock = clock
        self._monotonic = monotonic
        self._runs: dict[str, TurnRun] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._leaving = False
        self._next_round = 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="keeper", daemon=True)

    @property
    def at_work(self) -> int:
        """How many turns are kept."""
        return len(self._runs)

    def start(self) -> None:
        """Begin. Raises LedgerUnavailable."""
        self._ledger.announce(self._hosts, self._clock())
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

    def cancel(self, turn_id: str) -> None:
        """End a turn at once, if it runs here; to be called on its loop."""
        run = self._runs.get(turn_id)
        if run is not None:
            run.cancel()

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
                self._make_rounds()
            except LedgerUnavailable as error:
                log.warning("the ledger does not answer", error=str(error))
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

    def _make_rounds(self) -> None:
        if self._monotonic() >= self._next_round:
            self._next_round = self._monotonic() + _ROUND_S
            now = self._clock()
            self._ledger.announce(self._hosts, now)
            self._rounds(now)
