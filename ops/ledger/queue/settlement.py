"""Settlement of turns: recording a turn's result, once."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import islice

import sqlalchemy as sa
from sqlalchemy import Connection, RowMapping

from adapters.protocol.result import TurnResult
from adapters.protocol.session_result import Check
from ops.errors import AttemptOpen
from ops.ledger import sessions
from ops.ledger.accounting.booking import book, count_outcome
from ops.ledger.database import insert_new
from ops.ledger.models import Asked, AttemptEnd, Claim, State, Waiter
from ops.ledger.queue import requirements, session_runs, waiters
from ops.ledger.rows import change, fence, locked, open_attempt, stored_result
from ops.ledger.schema import turns

_ASKED_AT_ONCE = 1_000  # turn ids per statement


@dataclass(frozen=True, slots=True)
class Busy:
    """The turn belongs to another owner, or cannot be settled without one."""

    turn_id: str
    owner: str | None  # None: no owner at the moment, but it is not free either
    expires: float | None


@dataclass(frozen=True, slots=True)
class Settled:
    """The turn has its result."""

    result: TurnResult


def settle(
    connection: Connection,
    claim: Claim,
    result: TurnResult,
    now: float,
    ended: AttemptEnd | None = None,
    checks: Sequence[Check] = (),
) -> TurnResult:
    """Record the turn's result, book its last attempt and unlock its session, in one transaction.

    Return the result that stands: the stored one if the turn was settled before. Raises StaleClaim, and
    AttemptOpen if an attempt is open and `ended` is missing. Killed before: the successor reads the spool again.
    Killed after: no worker takes the turn again. So acknowledge the message and remove the spool after this.

    For a turn of a session, whose `checks` were run, the same transaction records the next turn or the session's
    end.
    """
    row = locked(connection, claim.turn_id)
    if row["state"] == State.SETTLED:
        return stored_result(connection, claim.turn_id)
    fence(row, claim)
    if ended is not None:
        book(connection, claim.turn_id, row["agent"], ended, now)
    still_open = open_attempt(connection, claim.turn_id)
    if still_open is not None:
        raise AttemptOpen(claim.turn_id, still_open.attempt)
    _conclude(connection, row, result, now, checks, claim.waiter)
    return result


def settle_unclaimed(connection: Connection, turn_id: str, result: TurnResult, now: float) -> Settled | Busy:
    """Settle a queued or waiting turn without a running agent: cancelled before it began. Raises UnknownTurn.

    Busy: it is running, or an attempt is open; only its owner can settle it.
    """
    row = locked(connection, turn_id)
    if row["state"] == State.SETTLED:
        return Settled(stored_result(connection, turn_id))
    if row["state"] == State.RUNNING or open_attempt(connection, turn_id) is not None:
        return Busy(turn_id, row["owner"], row["owner_expires"])
    _conclude(connection, row, result, now)
    return Settled(result)


def refuse(
    connection: Connection,
    turn_id: str,
    agent: str,
    result: TurnResult,
    task_id: str,
    now: float,
    *,
    follows: str = "",
    message: str | None = None,
) -> Asked | Busy:
    """Settle a turn whose request is invalid and was never submitted. The first result stands.

    The requesting task is recorded as waiting for it. Busy: a valid request with that turn_id is in progress; its
    result answers this one, too.
    """
    created = insert_new(
        connection,
        turns,
        turn_id=turn_id,
        state=State.QUEUED,
        agent=agent,
        producer="",
        rank=0,
        place=requirements.ANY,
        attempt=0,
        epoch=0,
        cancel_requested=False,
        created_at=now,
    )
    row = locked(connection, turn_id)
    waiter = Waiter(turn_id, task_id, follows, message)
    waiters.add(connection, waiter, now if row["state"] == State.SETTLED else None)
    if created:
        _conclude(connection, row, result, now)
    elif row["state"] != State.SETTLED:
        return Busy(turn_id, row["owner"], row["owner_expires"])
    return Asked(stored_result(connection, turn_id), again=not created)


def _conclude(
    connection: Connection,
    row: RowMapping,
    result: TurnResult,
    now: float,
    checks: Sequence[Check] = (),
    executing: Waiter | None = None,
) -> None:
    turn_id, agent = row["turn_id"], row["agent"]
    error_kind = result.error.kind if result.error else None
    sessions.unlock(connection, turn_id, now)
    if result.session_id is not None and row["attempt"]:
        # the agent may have continued in a session with another id: it can be resumed there
        sessions.remember(
            connection, result.session_id, agent=agent, host=row["host"], workspace=row["workspace"], now=now
        )
    change(
        connection, turn_id, state=State.SETTLED, owner=None, owner_expires=None, due_at=None,
        wait_reason=None, settled_at=now, status=result.status, error_kind=error_kind,
        result=result.model_dump_json(), session_id=result.session_id or row["session_id"],
    )  # fmt: skip
    waiters.settled(connection, turn_id, now, executing)
    count_outcome(connection, agent, error_kind or result.status)
    if row["session_run"] is not None:
        session_runs.advance(connection, row["session_run"], result, checks, now)


def settled(connection: Connection, turn_ids: Collection[str]) -> frozenset[str]:
    """Return those of these turns that are settled."""
    found: set[str] = set()
    remaining = iter(turn_ids)
    while asked := list(islice(remaining, _ASKED_AT_ONCE)):
        query = sa.select(turns.c.turn_id).where(turns.c.turn_id.in_(asked), turns.c.state == State.SETTLED)
        found.update(connection.scalars(query))
    return frozenset(found)
