"""Sessions of turns: one row each, with one open turn at a time.

The transaction that settles that turn also records the next one, or the end: nothing is lost in between. Locks are
taken in one order: the turn's, then the session's.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import Connection, RowMapping

from adapters.errors import InvalidRequest
from adapters.protocol.result import TurnResult
from adapters.protocol.session_request import SessionRequest
from adapters.protocol.session_result import Check, SessionResult
from adapters.protocol.session_run import NextTurn, Progress, after_turn, first_turn, turn_id
from ops.ledger.database import insert_new
from ops.ledger.models import Asked, State, Waiter
from ops.ledger.queue import admission, cancellation, waiters
from ops.ledger.schema import session_runs

_THIS = session_runs.c.run_id == sa.bindparam("this")
_ROW = sa.select(session_runs).where(_THIS)
_STANDS = sa.select(session_runs.c.turn, session_runs.c.settled_at).where(_THIS)
_LOCKED = _ROW.with_for_update(key_share=True)
_CHANGE = session_runs.update().where(_THIS)


@dataclass(frozen=True, slots=True)
class SessionRun:
    """A session of turns and its state."""

    run_id: str
    request: SessionRequest | None  # None: refused, or removed since
    number: int  # of the open turn, or the last one; 0: refused
    turn: str | None  # that turn's id
    cancel_requested: bool
    created_at: float
    settled_at: float | None
    result: SessionResult | None  # None: not over yet


def submit(
    connection: Connection,
    request: SessionRequest,
    now: float,
    due_at: float | None = None,
    expires_at: float | None = None,
) -> bool:
    """Record a session of turns, and queue its first turn. Return False if its id already exists.

    Killed before: the message is delivered again and submits it. Killed after: a worker takes the turn.
    """
    created = insert_new(
        connection,
        session_runs,
        run_id=request.run_id,
        turn=1,
        cancel_requested=False,
        created_at=now,
        progress=Progress().model_dump_json(),
        request=json.dumps(request.document()),
    )
    if not created:
        admission.prolong(connection, turn_id(request.run_id, 1), expires_at)
    elif not admission.submit(
        connection, first_turn(request), now, due_at, expires_at=expires_at, session_run=request.run_id
    ):
        _conclude(connection, _foreign(request.run_id, 1), now)
    return created


def admit(
    connection: Connection,
    request: SessionRequest,
    task_id: str,
    now: float,
    due_at: float | None = None,
    *,
    expires_at: float | None = None,
    revoked: bool = False,
    follows: str = "",
    message: str | None = None,
) -> Asked:
    """Queue a session of turns that a Celery task requests, and record the task as waiting for the result.

    If the result already exists, it is returned: report it to the task. Arguments are as in `admission.admit`.
    """
    submit(connection, request, now, due_at, expires_at)
    asked = _note(connection, Waiter(request.run_id, task_id, follows, message), now)
    if revoked:
        cancel(connection, request.run_id, now, running=False)
    return asked


def refuse(
    connection: Connection,
    result: SessionResult,
    task_id: str,
    now: float,
    *,
    follows: str = "",
    message: str | None = None,
) -> Asked:
    """Settle a session of turns whose request is invalid. An existing session of that id stands."""
    created = insert_new(
        connection,
        session_runs,
        run_id=result.run_id,
        turn=0,
        cancel_requested=False,
        created_at=now,
        progress=Progress().model_dump_json(),
    )
    if created:
        _conclude(connection, result, now)
    return _note(connection, Waiter(result.run_id, task_id, follows, message), now)


def _note(connection: Connection, waiter: Waiter, now: float) -> Asked:
    row = _locked(connection, waiter.turn_id)  # so that it does not end before the task is recorded
    settled = row["settled_at"] is not None
    noted = waiters.add(connection, waiter, now if settled else None)
    return Asked(_result(row), again=not noted or settled)


def advance(connection: Connection, run_id: str, turn: TurnResult, checks: Sequence[Check], now: float) -> None:
    """Record what follows the turn of a session that is being settled."""
    row = _locked(connection, run_id)
    if row["settled_at"] is not None or turn.turn_id != turn_id(run_id, row["turn"]):
        return
    request, progress = _request(row), Progress.model_validate_json(row["progress"])
    assert request is not None  # noqa: S101 - it has not ended
    step = after_turn(request, progress, turn, checks, now, cancelled=row["cancel_requested"])
    if isinstance(step, NextTurn):
        number = row["turn"] + 1
        if admission.submit(connection, step.request, now, session_run=run_id):
            values = {"turn": number, "progress": step.progress.model_dump_json()}
            connection.execute(_CHANGE, {"this": run_id, **values})
            return
        step = _foreign(run_id, number)
    _conclude(connection, step, now)


def cancel(connection: Connection, run_id: str, now: float, *, running: bool = True) -> str | None:
    """Request cancellation of a session of turns and its open turn; of a running one only with `running`.

    Return that turn's id; None if there is nothing left to cancel, or no session of that id.
    """
    while (open_turn := _open_turn(connection, run_id)) is not None:
        state = cancellation.cancel(connection, open_turn, now, running=running)
        if state is State.RUNNING and not running:
            return open_turn
        if _want_cancelled(connection, run_id, open_turn):
            return open_turn
    return None


def _open_turn(connection: Connection, run_id: str) -> str | None:
    """Return the session's open turn; None if the session has ended or is not recorded."""
    row = connection.execute(_STANDS, {"this": run_id}).mappings().first()
    return None if row is None or row["settled_at"] is not None else turn_id(run_id, row["turn"])


def _want_cancelled(connection: Connection, run_id: str, at: str) -> bool:
    """Let no turn follow the turn `at`, which the caller has locked. Return False if one already has."""
    row = _locked(connection, run_id)
    if row["settled_at"] is None and turn_id(run_id, row["turn"]) != at:
        return False
    connection.execute(_CHANGE, {"this": run_id, "cancel_requested": True})
    return True


def find(connection: Connection, run_id: str) -> SessionRun | None:
    """Return a session of turns, or None if it is not recorded."""
    row = connection.execute(_ROW, {"this": run_id}).mappings().first()
    if row is None:
        return None
    return SessionRun(
        run_id=run_id,
        request=_request(row),
        number=row["turn"],
        turn=turn_id(run_id, row["turn"]) if row["turn"] else None,
        cancel_requested=row["cancel_requested"],
        created_at=row["created_at"],
        settled_at=row["settled_at"],
        result=_result(row),
    )


def _conclude(connection: Connection, result: SessionResult, now: float) -> None:
    values = {
        "settled_at": now,
        "status": result.status,
        "reason": result.reason,
        "result": result.model_dump_json(),
    }
    connection.execute(_CHANGE, {"this": result.run_id, **values})
    waiters.settled(connection, result.run_id, now)


def _foreign(run_id: str, number: int) -> SessionResult:
    why = f"turn {turn_id(run_id, number)} already exists outside this session; choose another id"
    return SessionResult.refused(run_id, InvalidRequest(why, field="run_id"))


def _locked(connection: Connection, run_id: str) -> RowMapping:
    return connection.execute(_LOCKED, {"this": run_id}).mappings().one()


def _request(row: RowMapping) -> SessionRequest | None:
    return SessionRequest.model_validate_json(row["request"]) if row["request"] else None


def _result(row: RowMapping) -> SessionResult | None:
    return SessionResult.model_validate_json(row["result"]) if row["result"] else None
