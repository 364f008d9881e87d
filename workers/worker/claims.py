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
from ops.ledger import Claim, Ledger
from workers.turn.leases import OWNER_TTL_S
from workers.turn.run import RunTurn

_PERIOD_S = 1.0
_RENEWAL_S = OWNER_TTL_S / 3  # between two that prolong claims, which costs a write a turn
_ROUND_S = 5.0  # between two rounds of what is less urgent

log = structlog.get_logger(__name__)


class ClaimKeeper:
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
        self._runs: dict[str, RunTurn] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._leaving = False
        self._next_renewal = 0.0
        self._next_round = 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="keeper", daemon=True)

    @property
    def at_work(self) -> int:
        """How many turns are kept."""
        return len(self._runs)

    @property
    def idle_s(self) -> float:
        """The silence of the agent that has been silent for longest; 0 without any."""
        return max((run.idle_s for run in list(self._runs.values())), default=0.0)

    @property
    def claims(self) -> list[Claim]:
        """The claims that are kept."""
        return [run.claim for run in list(self._runs.values())]

    def start(self) -> None:
        """Begin. Raises LedgerUnavailable."""
        self._ledger.hosts.announce(self._hosts, self._clock())
        self._thread.start()

    def stop(self, within_s: float) -> None:
        """End; a ledger that does not answer is not waited for any longer."""
        self._stopping.set()
        self._thread.join(within_s)

    def keep(self, run: RunTurn) -> None:
        """Keep the claim of a turn from now on; to be called on its loop."""
        self._loop = asyncio.get_running_loop()
        former = self._runs.get(run.claim.turn_id)
        if former is not None:
            former.lose()  # this worker was frozen, its claim was given away, and it is the one that got it
        self._runs[run.claim.turn_id] = run
        if self._leaving:
            run.leave()

    def drop(self, run: RunTurn) -> None:
        """Keep its claim no longer."""
        if self._runs.get(run.claim.turn_id) is run:
            del self._runs[run.claim.turn_id]

    def run_of(self, turn_id: str) -> RunTurn | None:
        """What works on a turn here. May be called from any thread."""
        return self._runs.get(turn_id)

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
                self._look_after()
                self._make_rounds()
            except LedgerUnavailable as error:
                log.warning("the ledger does not answer", error=str(error))
            except Exception:
                log.exception("keeping claims failed")  # without this thread, this worker would lose all its turns

    def _look_after(self) -> None:
        runs = list(self._runs.values())
        if not runs:
            return
        claims = [run.claim for run in runs]
        asked_at = self._monotonic()
        renewing = asked_at >= self._next_renewal
        if renewing:
            standing = self._ledger.queue.renew(claims, self._clock(), OWNER_TTL_S)
            self._next_renewal = asked_at + _RENEWAL_S
        else:
            standing = self._ledger.queue.standing(claims)
        for run in runs:
            assert self._loop is not None  # noqa: S101  # it carries these runs
            if run.claim.turn_id not in standing.held:
                self._loop.call_soon_threadsafe(run.lose)
                continue
            if renewing:
                self._loop.call_soon_threadsafe(run.renewed, asked_at + OWNER_TTL_S)
            if run.claim.turn_id in standing.cancelled:
                self._loop.call_soon_threadsafe(run.cancel)

    def _make_rounds(self) -> None:
        if self._monotonic() >= self._next_round:
            self._next_round = self._monotonic() + _ROUND_S
            now = self._clock()
            self._ledger.hosts.announce(self._hosts, now)
            self._rounds(now)
