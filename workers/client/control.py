"""Producers' messages to a running turn: what both clients share."""

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
from workers.events.follow import Reader
from workers.events.model import AttemptEnded, ControlAnswered, PermissionAnswered, TurnSettled, own_fields
from workers.live.messages import COMMAND, Reply, Said, encode

TIMEOUT_S: Final = 30.0
_CONNECT_S = 4.0
_REPLY_S = 1.0  # a worker replies at once; if none does, one may be about to take over the turn
_GRACE_S = 2.0  # for the report that it was not carried out in time

_WITH_VALUE = {Control.SEND: "text", Control.SET_MODEL: "model", Control.SET_PERMISSION_MODE: "mode"}
_STANDS = {
    State.QUEUED: "is waiting for a worker: no agent is running yet",
    State.WAITING: "is waiting for its next attempt: no agent is running",
    State.SETTLED: "has already finished",
}


def message(
    turn_id: str,
    what: ControlRequest | Verdict,
    request_id: str | None,
    by: str | None,
    expires_at: float,
) -> Said:
    """Return the message for a control request or verdict. Raises InvalidRequest.

    `expires_at` is Unix time on the ledger's clock, which the worker has, too.
    """
    if isinstance(what, ControlRequest):
        wanted = _WITH_VALUE.get(what.control)
        if wanted is not None and not what.value:
            raise InvalidRequest("is empty", field=wanted)
        if len((what.value or "").encode()) > MAX_PROMPT_BYTES:
            raise InvalidRequest(f"is longer than {MAX_PROMPT_BYTES:,} bytes; put it in a file", field=wanted)
        if wanted is None and what.value is not None:
            raise InvalidRequest(f"{what.control} takes no value", field="value")
    return Said(turn_id, request_id or uuid4().hex, by or whoami(), expires_at, what)


def whoami() -> str:
    """Return the default requester, USER@MACHINE."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # no name for the user of this process
        user = str(os.getuid())
    return f"{user}@{platform.node()}"


class TurnControl:
    """One message in flight: `say` it, then pass the turn's events to `heard` until there is an outcome."""

    def __init__(self, app: Celery, ledger: Ledger, said: Said) -> None:
        self._app = app
        self._ledger = ledger
        self._said = said
        self._timeout_s = max(0.0, said.expires_at - ledger.clock())
        self._ends = time.monotonic() + self._timeout_s
        self.seen = 0  # the number of the last event before the message
        self.outcome: Mapping[str, Any] | None = None  # the fields of the event that reports it

    @property
    def wait_s(self) -> float:
        """Return how long to wait for the outcome from now on."""
        return max(0.0, self._ends + _GRACE_S - time.monotonic())

    def say(self) -> bool:
        """Send it to the worker that holds the turn, or to the next one; return whether there is an outcome.

        Raises UnknownTurn, BrokerUnavailable, ControlRefused, and ControlTimeout if no worker holds it.
        """
        self.seen = self._ledger.events.last_seq(self._said.turn_id)
        if self._is_over():
            return True
        with self._connected() as connection:
            while True:
                left_s = self._ends - time.monotonic()
                reply = self._ask(connection, max(0.1, min(left_s, _REPLY_S)))
                if reply is not None:
                    if reply.refused is not None:
                        raise ControlRefused(f"turn {self._said.turn_id}: {reply.refused}")
                    self.outcome = reply.outcome
                    return self.outcome is not None
                if left_s <= 0:
                    raise ControlTimeout(f"no worker reports holding turn {self._said.turn_id}; {self._again}")
                if self._is_over():
                    return True

    def heard(self, event: Mapping[str, Any]) -> bool:
        """Take one of the turn's events; return whether it reports the outcome.

        Raises ControlRefused once no outcome is possible any more.
        """
        self.outcome = self.outcome or self._outcome_in(event)
        if self.outcome is None and event["event"] in (AttemptEnded.name, TurnSettled.name):
            raise ControlRefused(f"turn {self._said.turn_id}: its agent ended before the request was carried out")
        return self.outcome is not None

    def answer(self) -> dict[str, Any]:
        """Return the outcome. Raises ControlRefused, ControlFailed; ControlTimeout if it is unknown."""
        turn_id, outcome = self._said.turn_id, self.outcome
        if outcome is None:
            raise ControlTimeout(
                f"turn {turn_id} did not answer within {self._timeout_s:.0f} s, but still may; {self._again}"
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
        return f"retry with request id {self._said.request_id}: it is carried out at most once"

    def _is_over(self) -> bool:
        """Return whether the turn ended after an outcome. Raises UnknownTurn, ControlRefused if no agent runs."""
        state = State(self._ledger.reports.turn(self._said.turn_id).state)
        if state is State.RUNNING:
            return False
        self.outcome = self._past()
        if self.outcome is None:
            raise ControlRefused(f"turn {self._said.turn_id} {_STANDS[state]}")
        return True

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Connection]:
        """Yield a connection to the broker. Celery itself would wait forever for a broker that is down."""
        connection: Connection = self._app.connection_for_write(connect_timeout=_CONNECT_S)
        faults = (OperationalError, OSError, *connection_errors(connection), *connection.channel_errors)
        try:
            connection.ensure_connection(max_retries=1, interval_start=0.2, timeout=_CONNECT_S)
            yield connection
        except faults as error:
            raise BrokerUnavailable(f"the broker did not accept the request: {error or repr(error)}") from error
        finally:
            connection.release()

    def _ask(self, connection: Connection, timeout_s: float) -> Reply | None:
        """Ask all workers; None: no reply came in time, or only a late one to another request."""
        replies = self._app.control.broadcast(
            COMMAND,
            arguments=encode(self._said),
            connection=connection,
            reply=True,
            timeout=timeout_s,
            limit=1,  # workers that do not hold the turn are silent
        )
        given = [each for reply in replies or () for each in reply.values() if "refused" in each]
        return Reply(given[0]["refused"], given[0]["outcome"]) if given else None

    def _past(self) -> Mapping[str, Any] | None:
        """Return the outcome recorded in the ledger, if any."""
        found = (self._outcome_in(event) for event in Reader(self._ledger, self._said.turn_id, 0).stored())
        return next((outcome for outcome in found if outcome is not None), None)

    def _outcome_in(self, event: Mapping[str, Any]) -> Mapping[str, Any] | None:
        name = (PermissionAnswered if isinstance(self._said.what, Verdict) else ControlAnswered).name
        wanted = event["event"] == name and event["request_id"] == self._said.request_id
        return own_fields(event) if wanted else None


def _earlier(answered: Mapping[str, Any]) -> str:
    if answered["allowed"] is None:
        return f"question {answered['request_id']} is closed: {answered['reason']}"
    word = "allowed" if answered["allowed"] else "denied"
    return f"question {answered['request_id']} was already {word} by {answered['by']}"
