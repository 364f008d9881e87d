"""Parking of turns that wait for something, such as an unreachable host."""

from __future__ import annotations

from sqlalchemy import Connection

from ops.ledger.accounting.booking import book
from ops.ledger.models import AttemptEnd, Claim, State
from ops.ledger.queue import requirements
from ops.ledger.rows import change, change_open, held, open_attempt


def wait(
    connection: Connection,
    claim: Claim,
    due_at: float,
    reason: str,
    now: float,
    ended: AttemptEnd | None = None,
    *,
    unreachable_since: float | None = None,
    host: str | None = None,
    faults: int | None = None,
) -> None:
    """Park the turn until `due_at`, and book the attempt that ended, in one transaction. Raises StaleClaim.

    Append the attempt's events first: the next attempt's are numbered after the last stored event.

    This ends the claim. An open attempt stays open, to be attached to; `unreachable_since` is recorded with it
    unless an earlier time is. The session stays locked.

    `faults` counts the faults of ours that have set the turn aside in a row, this one included; None: there was
    none. An unreachable host does not interrupt the row. A cancelled turn is due at once, but not after a fault.

    `host` is the only host the next attempt can use, such as the one with its session; None: as requested.

    Killed after: any worker takes the turn when it is due.
    """
    row = held(connection, claim)
    if ended is not None:
        book(connection, claim.turn_id, row["agent"], ended, now)
    still_open = open_attempt(connection, claim.turn_id)
    if unreachable_since is not None and still_open is not None and still_open.unreachable_since is None:
        change_open(connection, claim.turn_id, unreachable_since=unreachable_since)
    change(
        connection, claim.turn_id, state=State.WAITING, owner=None, owner_expires=None,
        due_at=now if row["cancel_requested"] and faults is None else due_at, wait_reason=reason,
        faults=(0 if unreachable_since is None else row["faults"]) if faults is None else faults,
        place=requirements.at(still_open.host) if still_open else _next(claim, host, row["cancel_requested"]),
    )  # fmt: skip


def reached(connection: Connection, claim: Claim) -> None:
    """Record that a worker has attached to the open attempt: its host is reachable. Raises StaleClaim.

    Killed before: until it attaches, the successor considers the host unreachable for longer than it was.
    """
    held(connection, claim)
    change_open(connection, claim.turn_id, unreachable_since=None)


def _next(claim: Claim, host: str | None, cancelled: bool) -> str:
    """Return the place the next attempt needs: not the last one's host, unless required."""
    if cancelled:
        return requirements.NOWHERE
    return requirements.requested(claim.request) if host is None else requirements.on(host)
