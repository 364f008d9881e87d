"""The producer's client: enqueue turns, follow them, fetch results, cancel. For asyncio: `workers.client.aio`."""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Iterable
from itertools import islice
from typing import Any

from celery import Celery

from adapters.errors import TurnCancelled
from adapters.live import ControlRequest, Verdict
from adapters.markdown import Transcript
from adapters.protocol.request import TurnRequest
from adapters.protocol.result import TurnResult
from adapters.protocol.session_request import SessionRequest
from adapters.protocol.session_result import SessionResult
from adapters.protocol.session_run import turn_id as turn_of
from ops.errors import UnknownTurn
from ops.ledger import Ledger, SessionRun, State
from ops.tracing import traced
from workers.client.control import TIMEOUT_S, TurnControl, message
from workers.client.publish import send
from workers.errors import ResultTimeout
from workers.events.bus import Subscription
from workers.events.follow import POLL_S, follow, watch
from workers.live.messages import Said
from workers.results import refused

_TOGETHER = 100  # turns per transaction: others wait for it


class Client:
    """A producer's client for broker and ledger; safe to share between threads.

    A turn's id is its idempotency key: however often a call is repeated with the same id, the turn runs once. So
    after an error, call again. All methods raise LedgerUnavailable while the ledger is down.
    """

    def __init__(self, app: Celery, ledger: Ledger) -> None:
        self._app = app
        self._ledger = ledger

    def enqueue(self, request: TurnRequest) -> str:
        """Queue a turn; return its id. Raises BrokerUnavailable."""
        (turn_id,) = self.enqueue_many((request,))
        return turn_id

    def enqueue_many(self, requests: Iterable[TurnRequest]) -> list[str]:
        """Queue turns over one connection and in few transactions; return their ids in the order of the requests.

        Raises BrokerUnavailable: some may have been queued, and the error says how many; call again with all.
        """
        turn_ids: list[str] = []
        for batch in _batches(map(traced, requests)):
            # The message goes first: if the producer is killed before the ledger has the turn, it is queued
            # anyway, because the worker records it, too.
            send(self._app, batch)
            self._ledger.queue.submit_many(batch, self._ledger.clock.read())
            turn_ids += (request.turn_id for request in batch)
        return turn_ids

    def result(self, turn_id: str, timeout_s: float | None = None) -> TurnResult:
        """Wait for a turn's result. Raises ResultTimeout; the turn keeps running."""
        stored = self._ledger.reports.result(turn_id)
        if stored is not None:
            return stored
        ends = time.monotonic() + timeout_s if timeout_s is not None else math.inf
        with Subscription(self._app.conf.broker_url, turn_id) as subscription:
            while (stored := self._ledger.reports.result(turn_id)) is None:
                left = ends - time.monotonic()
                if left <= 0:
                    raise ResultTimeout(f"turn {turn_id} did not finish within {timeout_s} s; it is still running")
                # Any event is a reason to check; the ledger decides, so a lost one costs a second.
                subscription.batches(min(left, POLL_S))
        return stored

    def events(self, turn_id: str, after: int = 0) -> Generator[dict[str, Any], None, None]:
        """Yield a turn's events from number `after` + 1 on, live and without gaps, until it is settled."""
        return watch(self._ledger, self._app.conf.broker_url, turn_id, after)

    def transcript(self, turn_id: str) -> Generator[str, None, None]:
        """Yield a turn or session of turns as Markdown, a text for each event that has one, until it ends."""
        session = self._ledger.session_runs.find(turn_id)
        for each in (turn_id,) if session is None else self.session_turns(turn_id):
            yield from filter(None, map(Transcript().text, self.events(each)))

    def enqueue_session(self, request: SessionRequest) -> str:
        """Queue a session of turns; return its id. Raises BrokerUnavailable."""
        request = request.model_copy(update={"turn": traced(request.turn)})
        send(self._app, (request,))
        self._ledger.session_runs.submit(request, self._ledger.clock.read())
        return request.run_id

    def session_result(self, run_id: str, timeout_s: float | None = None) -> SessionResult:
        """Wait for the result of a session of turns. Raises UnknownTurn, and ResultTimeout; it keeps running."""
        ends = time.monotonic() + timeout_s if timeout_s is not None else math.inf
        while (session := self._session(run_id)).result is None:
            try:
                self.result(session.turn or "", None if ends == math.inf else ends - time.monotonic())
            except ResultTimeout as error:
                raise ResultTimeout(
                    f"session of turns {run_id} did not finish within {timeout_s} s; it is still running"
                ) from error
        return session.result

    def run_session(self, request: SessionRequest, timeout_s: float | None = None) -> SessionResult:
        """Queue a session of turns and wait for its result. Raises BrokerUnavailable, ResultTimeout."""
        return self.session_result(self.enqueue_session(request), timeout_s)

    def session_turns(self, run_id: str) -> Generator[str, None, None]:
        """Yield the ids of a session's turns from the first one on, each once it is queued, until the end."""
        number = 1
        while True:
            session = self._session(run_id)
            last = session.number
            yield from (turn_of(run_id, each) for each in range(number, last + 1))
            number = last + 1
            if session.result is not None:
                return
            self.result(session.turn or "")

    def _session(self, run_id: str) -> SessionRun:
        session = self._ledger.session_runs.find(run_id)
        if session is None:
            raise UnknownTurn(run_id)
        return session

    def cancel(self, turn_id: str) -> bool:
        """Cancel a turn or a session of turns; return whether there was anything left to cancel.

        Raises UnknownTurn. A turn without a running agent is settled right here; workers answer those who wait at
        the result backend.
        """
        session, now = self._ledger.session_runs.find(turn_id), self._ledger.clock.read()
        if session is not None:
            turn_id = self._ledger.session_runs.cancel(turn_id, now) or ""
            if not turn_id:
                return False
        # A session ends with this turn, even if the turn has just finished by itself.
        state = self._ledger.queue.cancel(turn_id, now)
        if state in (State.QUEUED, State.WAITING):
            usages = self._ledger.accounting.usage_of(turn_id)
            why = TurnCancelled("cancelled while waiting")
            cancelled = refused(turn_id, why, attempts=max(usages, default=0), usages=usages.values())
            self._ledger.queue.settle_unclaimed(turn_id, cancelled, now)
        return session is not None or state is not State.SETTLED

    def control(
        self,
        turn_id: str,
        request: ControlRequest,
        *,
        request_id: str | None = None,
        by: str | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> dict[str, Any]:
        """Send a control request to a turn's running agent; return its answer.

        `by` identifies the requester in the ledger; by default, the user and the machine. Sent twice with one
        `request_id`, the request is carried out once and answered twice. Raises UnknownTurn, InvalidRequest,
        ControlRefused, ControlFailed, BrokerUnavailable, and ControlTimeout: it may have been carried out, so
        retry with that id.
        """
        return self._say(message(turn_id, request, request_id, by, self._ledger.clock.read() + timeout_s))

    def answer(
        self,
        turn_id: str,
        request_id: str,
        verdict: Verdict,
        *,
        by: str | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> dict[str, Any]:
        """Answer an agent's question (event `permission_requested`); return the answer as recorded in the ledger.

        The first answer stands. Raises UnknownTurn, BrokerUnavailable, ControlTimeout, and ControlRefused if there
        was another answer before, or no such question.
        """
        return self._say(message(turn_id, verdict, request_id, by, self._ledger.clock.read() + timeout_s))

    def _say(self, said: Said) -> dict[str, Any]:
        saying = TurnControl(self._app, self._ledger, said)
        with Subscription(self._app.conf.broker_url, said.turn_id) as subscription:
            if not saying.say():
                events = follow(self._ledger, subscription, said.turn_id, saying.seen, saying.wait_s)
                any(saying.heard(event) for event in events)
        return saying.answer()


def _batches(requests: Iterable[TurnRequest]) -> Generator[tuple[TurnRequest, ...], None, None]:
    remaining = iter(requests)
    while batch := tuple(islice(remaining, _TOGETHER)):
        yield batch
