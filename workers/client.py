"""The producer's side: enqueue turns, follow them, fetch results, cancel."""

from __future__ import annotations

import math
import time
from collections.abc import Generator
from typing import Any

from celery import Celery
from kombu.exceptions import OperationalError

from adapters.errors import TurnCancelled
from adapters.request import TurnRequest
from adapters.result import TurnResult
from ops.ledger import Ledger, State
from workers.app import send
from workers.bus import Subscription
from workers.errors import BrokerUnavailable, ResultTimeout
from workers.outcome import refused
from workers.watch import watch

_POLL_S = 1.0


class Client:
    """Talks to the broker and the ledger; safe to share between threads."""

    def __init__(self, app: Celery, ledger: Ledger) -> None:
        self._app = app
        self._ledger = ledger

    def enqueue(self, request: TurnRequest) -> str:
        """Queue a turn; returns its id. Queueing the same id again does nothing more than that.

        Raises BrokerUnavailable. The message goes first: a producer killed before the ledger knows of the turn has
        queued it all the same, for the worker enters it as well.
        """
        try:
            send(self._app, request)
        except OperationalError as error:
            raise BrokerUnavailable(f"the turn could not be queued: {error}") from error
        self._ledger.submit(request, time.time())
        return request.turn_id

    def result(self, turn_id: str, timeout_s: float | None = None) -> TurnResult:
        """Wait for a turn's result. Raises ResultTimeout; the turn goes on."""
        stored = self._ledger.result(turn_id)
        if stored is not None:
            return stored
        ends = time.monotonic() + timeout_s if timeout_s is not None else math.inf
        with Subscription(self._app.conf.broker_url, turn_id) as subscription:
            while (stored := self._ledger.result(turn_id)) is None:
                left = ends - time.monotonic()
                if left <= 0:
                    raise ResultTimeout(f"turn {turn_id} has not ended within {timeout_s} s; it goes on")
                # Any event is reason to look again; the ledger decides, so a lost one costs a second.
                list(subscription.batches(min(left, _POLL_S)))
        return stored

    def events(self, turn_id: str, after: int = 0) -> Generator[dict[str, Any], None, None]:
        """A turn's events from number `after` + 1 on, live, without gaps, until it is settled."""
        return watch(self._ledger, self._app.conf.broker_url, turn_id, after)

    def cancel(self, turn_id: str) -> bool:
        """Ask for a turn's end; returns whether there is anything left to cancel."""
        state = self._ledger.cancel(turn_id, time.time())
        if state in (State.QUEUED, State.WAITING):
            usages = self._ledger.usage_of(turn_id)
            why = TurnCancelled("cancelled while it waited")
            cancelled = refused(turn_id, why, attempts=max(usages, default=0), usages=usages.values())
            self._ledger.settle_unclaimed(turn_id, cancelled, time.time())
        return state is not State.SETTLED
