"""Waits for room on a host whose disk is full, before an attempt starts there."""

from __future__ import annotations

import structlog

from adapters.errors import SpoolUnwritable
from ops.ledger import Attempt, Claim
from workers.context import WorkerContext
from workers.limits import LimitWatch
from workers.turn.placement import another_may_run

_MARGIN_S = 5.0  # before the turn's time is up: a full disk is the better explanation

log = structlog.get_logger(__name__)


class RoomWait:
    """Whether one attempt keeps waiting."""

    def __init__(self, context: WorkerContext, claim: Claim, attempt: Attempt, watch: LimitWatch) -> None:
        self._context = context
        self._claim = claim
        self._attempt = attempt
        self._watch = watch
        self._told = False

    def __call__(self) -> bool:
        """Return whether to wait: within the turn's limits, and if no other host can have the turn."""
        if another_may_run(self._context.hosts, self._claim, self._attempt, SpoolUnwritable()):
            return False
        left_s = self._watch.left_s(self._context.moment()) - _MARGIN_S
        if left_s > 0 and not self._told:
            self._told = True
            log.warning("the disk of the spool is full; the turn waits for room", at_most_s=round(left_s))
        return left_s > 0
