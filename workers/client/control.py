"""The producer's side of what is said to a turn that runs: what both clients share."""

from __future__ import annotations

import contextlib
import getpass
import os
import platform
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final
from uuid import uuid4

from celery import Celery
from kombu import Connection
from kombu.exceptions import OperationalError

from adapters.errors import InvalidRequest
from adapters.live import Control, ControlRequest, Verdict
from adapters.protocol.request import MAX_PROMPT_BYTES
from ops.ledger import Ledger, State
from workers.brokers.settings import connection_errors
from workers.errors import BrokerUnavailable, ControlFailed, ControlRefused, ControlTimeout
from workers.events.follow import stored
from workers.events.model import AttemptEnded, ControlAnswered, PermissionAnswered, TurnSettled, own_fields
from workers.live.messages import COMMAND, Reply, Said, encode

TIMEOUT_S: Final = 30.0
_CONNECT_S = 4.0
_REPLY_S = 1.0  # a worker replies at once; if none does, one may be about to take the turn over
_GRACE_S = 2.0  # for the word that it was not done in time

_WITH_VALUE = {Control.SEND: "text", Control.SET_MODEL: "model", Control.SET_PERMISSION_MODE: "mode"}
_STANDS = {
    State.QUEUED: "waits for a worker: no agent runs for it yet",
    State.WAITING: "waits for its next attempt: no agent runs for it just now",
    State.SETTLED: "has ended already",
}


def message(
    turn_id: str, what: ControlRequest | Verdict, request_id: str | None, by: str | None, timeout_s: float
) -> Said:
    """The message that says so. Raises InvalidRequest."""
    if isinstance(what, ControlRequest):
        wanted = _WITH_VALUE.get(what.control)
        if wanted is not None and not what.value:
            raise InvalidRequest("is empty", field=wanted)
        if len((what.value or "").encode()) > MAX_PROMPT_BYTES:
            raise InvalidRequest(f"is longer than {MAX_PROMPT_BYTES:,} bytes; put it in a file", field=wanted)
        if wanted is None and what.value is not None:
            raise InvalidRequest(f"{what.control} takes no value", field="value")
    return Said(turn_id, request_id or uuid4().hex, by or whoami(), time.time() + timeout_s, what)


def whoami() -> str:
    """Who asks, where nobody says so."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # no name for the user of this process
        user = str(os.getuid())
    return f"{user}@{platform.node()}"


class TurnControl:
    """One message on its way: `say` it, then show the turn's events to `heard` until there is an outcome."""

    def __init__(self, app: Celery, ledger: Ledger, said: Said) -> None:
        self._app = app
        self._ledger = ledger
        self._said = said
        self._timeout_s = max(0.0, said.expires_at - time.time())
        self.seen = 0  # the number of the last event before it was said
        self.outcome: Mapping[str, Any] | None = None  # the fields of the event that tells it

    @property
    def wait_s(self) -> float:
        """How long to wait for the outcome from now on."""
        return max(0.0, self._said.expires_at + _GRACE_S - time.time())

    def say(self) -> bool:
        """Tell the worker that holds the turn, or the next one; returns whether there is an outcome already.

        Raises UnknownTurn, BrokerUnavailable, ControlRefused, and ControlTimeout if no worker holds it.
        """
        self.seen = self._ledger.events.last_seq(self._said.turn_id)
        if self._is_over():
            return True
        with self._connected() as connection:
            while True:
                left_s = self._said.expires_at - time.time()
                reply = self._ask(connection, max(0.1, min(left_s, _REPLY_S)))
                if reply is not None:
                    if reply.refused is not None:
                        raise ControlRefused(f"turn {self._said.turn_id}: {reply.refused}")
                    self.outcome = reply.outcome
                    return self.outcome is not None
                if left_s <= 0:
                    raise ControlTimeout(f"no worker says that it holds turn {self._said.turn_id}; {self._again}")
                if self._is_over():
                    return True

    def heard(self, event: Mapping[str, Any]) -> bool:
        """One of the turn's events; returns whether it tells the outcome.

        Raises ControlRefused when nothing can come of it any more.
        """
        self.outcome = self.outcome or self._outcome_in(event)
        if self.outcome is None and event["event"] in (AttemptEnded.name, TurnSettled.name):
            raise ControlRefused(f"turn {self._said.turn_id}: its agent ended before it was done")
        return self.outcome is not None

    def answer(self) -> dict[str, Any]:
        """What came of it. Raises ControlRefused, ControlFailed; ControlTimeout if that is not known."""
        turn_id, outcome = self._said.turn_id, self.outcome
        if outcome is None:
            raise ControlTimeout(
                f"turn {turn_id} has not answered within {self._timeout_s:.0f} s, and may do so yet; {self._again}"
            )
        if isinstance(self._said.what, Verdict):
            if outcome["allowed"] is not self._said.what.allowed:
                raise ControlRefused(f"turn {turn_id}: {_earlier(outcome)}")
            return dict(outcome)
        if outcome["ok"]:
            return dict(outcome["response"])
        if outcome["error_kind"] == InvalidRequest.kind:
            raise ControlRefused(f"turn {turn_id}: {outcome['message']}")
        raise ControlFailed(f"turn {turn_id}: {outcome['error_kind']}: {outcome['message']}")

    @property
    def _again(self) -> str:
        return f"ask again with the request id {self._said.request_id}: it is done once at most"

    def _is_over(self) -> bool:
        """Whether the turn has ended after it was done. Raises UnknownTurn, ControlRefused if no agent runs."""
        state = State(self._ledger.reports.turn(self._said.turn_id).state)
        if state is State.RUNNING:
            return False
        self.outcome = self._past()
        if self.outcome is None:
            raise ControlRefused(f"turn {self._said.turn_id} {_STANDS[state]}")
        return True

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Connection]:
        """A connection to the broker. Celery itself would wait for one that is away, for ever."""
        connection: Connection = self._app.connection_for_write(connect_timeout=_CONNECT_S)
        faults = (OperationalError, OSError, *connection_errors(connection), *connection.channel_errors)
        try:
            connection.ensure_connection(max_retries=1, interval_start=0.2, timeout=_CONNECT_S)
            yield connection
        except faults as error:
            raise BrokerUnavailable(f"the broker does not take the request: {error or repr(error)}") from error
        finally:
            connection.release()

    def _ask(self, connection: Connection, timeout_s: float) -> Reply | None:
        """Tell all workers; None: nobody has replied in time, or what came was late, and to another request."""
        replies = self._app.control.broadcast(
            COMMAND,
            arguments=encode(self._said),
            connection=connection,
            reply=True,
            timeout=timeout_s,
            limit=1,  # whoever does not hold the turn is silent
        )
        given = [each for reply in replies or () for each in reply.values() if "refused" in each]
        return Reply(given[0]["refused"], given[0]["outcome"]) if given else None

    def _past(self) -> Mapping[str, Any] | None:
        """What came of it, as the ledger has it."""
        found = (self._outcome_in(event) for event in stored(self._ledger, self._said.turn_id, 0))
        return next((outcome for outcome in found if outcome is not None), None)

    def _outcome_in(self, event: Mapping[str, Any]) -> Mapping[str, Any] | None:
        name = (PermissionAnswered if isinstance(self._said.what, Verdict) else ControlAnswered).name
        wanted = event["event"] == name and event["request_id"] == self._said.request_id
        return own_fields(event) if wanted else None


def _earlier(answered: Mapping[str, Any]) -> str:
    if answered["allowed"] is None:
        return f"question {answered['request_id']} is over: {answered['reason']}"
    word = "allowed" if answered["allowed"] else "denied"
    return f"question {answered['request_id']} was {word} before, by {answered['by']}"
