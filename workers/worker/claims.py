"""Renews this worker's claims and delivers cancellations."""

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
_RENEWAL_S = OWNER_TTL_S / 3  # between renewals, which cost one write per turn
_ROUND_S = 5.0  # between rounds of less urgent work

log = structlog.get_logger(__name__)


class ClaimKeeper:
    """A thread that calls the ledger once a second; turns are touched only on their loop."""

    def __init__(
        self,
        ledger: Ledger,
        hosts: Mapping[str, Mapping[str, str]],
        rounds: Callable[[float], None],
        clock: Callable[[], float],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`hosts` are this worker's hosts with their labels; `rounds` is called every few seconds."""
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
    def idle_s(self) -> float:
        """Return the longest current silence of an agent in seconds; 0 without agents."""
        return max((run.idle_s for run in list(self._runs.values())), default=0.0)

    @property
    def claims(self) -> list[Claim]:
        """Return the claims being kept."""
        return [run.claim for run in list(self._runs.values())]

    def start(self) -> None:
        """Announce the hosts and start. Raises LedgerUnavailable."""
        self._ledger.hosts.announce(self._hosts, self._clock())
        self._thread.start()

    def stop(self, within_s: float) -> None:
        """Stop; do not wait any longer for a ledger that does not answer."""
        self._stopping.set()
        self._thread.join(within_s)

    def keep(self, run: RunTurn) -> None:
        """Keep a turn's claim from now on; call on its loop."""
        self._loop = asyncio.get_running_loop()
        former = self._runs.get(run.claim.turn_id)
        if former is not None:
            former.lose()  # this worker was frozen, lost the claim, and then won it again itself
        self._runs[run.claim.turn_id] = run
        if self._leaving:
            run.leave()

    def drop(self, run: RunTurn) -> None:
        """Stop keeping a turn's claim."""
        if self._runs.get(run.claim.turn_id) is run:
            del self._runs[run.claim.turn_id]

    def run_of(self, turn_id: str) -> RunTurn | None:
        """Return the run of a turn on this worker, if any. May be called from any thread."""
        return self._runs.get(turn_id)

    def leave_all(self) -> None:
        """Detach from all turns; call on their loop."""
        self._leaving = True
        if self._runs:
            log.info(
                "leaving running turns to the next worker; without one, they end when their leases expire",
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
                log.exception("renewing claims failed")  # without this thread, the worker would lose all its turns

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
