"""Claims: which worker runs a turn, and where its agent runs."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import sqlalchemy as sa
from sqlalchemy import Connection, RowMapping

from ops.errors import AttemptOpen
from ops.ledger import events
from ops.ledger.accounting import budgets
from ops.ledger.accounting.budgets import OverBudget
from ops.ledger.models import Attempt, Claim, State
from ops.ledger.queue import requirements, waiters
from ops.ledger.queue.host_slots import HostBusy, refusal
from ops.ledger.rows import (
    as_stored,
    attempts_of,
    change,
    change_open,
    held,
    open_attempt,
    stored_request,
)
from ops.ledger.schema import attempts, turns

_BEGUN = attempts.insert()  # built once, as in `rows`


@dataclass(frozen=True, slots=True)
class Renewal:
    """State of an owner's claims."""

    held: frozenset[str]  # turn ids still owned; the others are lost
    cancelled: frozenset[str]  # turn ids among `held` whose cancellation was requested


def claimed(connection: Connection, row: RowMapping, owner: str, now: float, ttl: float) -> Claim:
    """Claim a free turn whose row is locked. Raises ValidationError for a newer runturn's request."""
    turn_id, epoch = row["turn_id"], row["epoch"] + 1
    request = stored_request(connection, turn_id)
    change(
        connection, turn_id, state=State.RUNNING, owner=owner, epoch=epoch, owner_expires=now + ttl,
        due_at=None, wait_reason=None,
    )  # fmt: skip
    return Claim(
        turn_id=turn_id,
        owner=owner,
        epoch=epoch,
        request=request,
        created_at=row["created_at"],
        ready_at=row["due_at"] if row["state"] == State.QUEUED else None,
        cancel_requested=row["cancel_requested"],
        attempts=attempts_of(connection, turn_id) if row["attempt"] else (),
        session_run=row["session_run"],
        expires_at=row["expires_at"],
        waiters=waiters.of(connection, turn_id),
        faults=row["faults"],
    )


def route(connection: Connection, claim: Claim, agent: str, seq: int, line: bytes) -> Claim:
    """Assign an agent to a turn whose request names none, and store the event saying so, numbered `seq`.

    Return the claim with that agent. Raises StaleClaim.
    """
    events.append(connection, claim, seq, [line])
    request = claim.request.model_copy(update={"agent": agent})
    change(connection, claim.turn_id, agent=agent, request=as_stored(request))
    return replace(claim, request=request)


def renew(connection: Connection, claims: Collection[Claim], now: float, ttl: float) -> Renewal:
    """Renew the leases of these claims. Those missing from `Renewal.held` were lost: detach from them."""
    # Locked in one order, as in every transaction that locks many turns.
    held = _held(connection, claims, locked=True)
    connection.execute(turns.update().where(turns.c.turn_id.in_(held)).values(owner_expires=now + ttl))
    return _renewal(held)


def standing(connection: Connection, claims: Collection[Claim]) -> Renewal:
    """Return the state of claims without renewing them. Writes nothing, so it may be called often."""
    return _renewal(_held(connection, claims, locked=False))


def release(connection: Connection, claims: Collection[Claim], now: float) -> None:
    """Release running turns, so that they can be taken at once. A stale claim changes nothing.

    Their agents keep running.
    """
    held = _held(connection, claims, locked=True)
    connection.execute(turns.update().where(turns.c.turn_id.in_(held)).values(owner=None, owner_expires=now))


def _held(connection: Connection, claims: Collection[Claim], *, locked: bool) -> dict[str, bool]:
    """Return the turns whose claims are not stale, each with its `cancel_requested`.

    Select by turn id alone: SQLite reads all turns to find those whose (turn_id, owner, epoch) is in a list.
    """
    ours = {(claim.turn_id, claim.owner, claim.epoch) for claim in claims}
    columns = (turns.c.turn_id, turns.c.owner, turns.c.epoch, turns.c.cancel_requested)
    query = sa.select(*columns).where(turns.c.turn_id.in_([claim.turn_id for claim in claims]))
    if locked:
        query = query.order_by(turns.c.turn_id).with_for_update(key_share=True)
    rows = connection.execute(query)
    return {turn_id: cancelled for turn_id, owner, epoch, cancelled in rows if (turn_id, owner, epoch) in ours}


def _renewal(held: Mapping[str, bool]) -> Renewal:
    return Renewal(frozenset(held), frozenset(turn_id for turn_id, cancelled in held.items() if cancelled))


def begin_attempt(
    connection: Connection,
    claim: Claim,
    *,
    host: str,
    spool_id: str,
    session_id: str | None,
    resume: bool,
    now: float,
    slots: int | None = None,
    lease_s: int | None = None,
    stop_grace_s: float | None = None,
    agent_version: str | None = None,
) -> Attempt | HostBusy | OverBudget:
    """Record where the agent is about to run; call it before starting it. Raises StaleClaim, AttemptOpen.

    HostBusy: `slots` or more attempts are already open on that host (None: no limit), and nothing was written. The
    slot is taken until the attempt's end is booked, whatever happens to its workers. `lease_s` and `stop_grace_s`
    are the values passed to the host: a successor with other settings uses these. `agent_version` is the version
    found on the host; None: unknown.

    OverBudget: a budget of the turn's labels has less left than the request's `max_cost_usd`, or than the budget
    reserves for requests without one; nothing was written. Otherwise that amount is reserved until the attempt's
    end is booked, when its cost replaces it.

    Killed after: the successor's `Claim.open` names host and spool. It starts the agent there under the same spool
    if the host was never told to, see `start`, and attaches otherwise. Repeating the call with the same spool
    changes nothing.
    """
    row = held(connection, claim)
    current = open_attempt(connection, claim.turn_id)
    if current is not None:
        if current.spool_id == spool_id:
            return current
        raise AttemptOpen(claim.turn_id, current.attempt)
    busy = refusal(connection, host, slots) if slots is not None else None
    if busy is not None:
        return busy
    number = row["attempt"] + 1
    over = budgets.reserve(connection, claim.request, number, now)
    if over is not None:
        return over
    attempt = Attempt(
        turn_id=claim.turn_id,
        attempt=number,
        host=host,
        spool_id=spool_id,
        seal=secrets.token_hex(16),
        session_id=session_id,
        resume=resume,
        first_seq=events.last_seq(connection, claim.turn_id) + 1,
        started_at=now,
        lease_s=lease_s,
        stop_grace_s=stop_grace_s,
        agent_version=agent_version,
    )
    values = {name: getattr(attempt, name) for name in Attempt.__dataclass_fields__}
    connection.execute(_BEGUN, values)
    change(
        connection, claim.turn_id, attempt=attempt.attempt, host=host, session_id=session_id,
        place=requirements.at(host), started_at=row["started_at"] if row["started_at"] is not None else now,
    )  # fmt: skip
    return attempt


def start(connection: Connection, claim: Claim, *, sent: bool = True) -> None:
    """Record that the host of the open attempt is about to be told to start its agent. Raises StaleClaim.

    Killed after: no successor starts the agent of this attempt. It attaches, and if there is nothing to attach to,
    the attempt was lost. With `sent` False, the host was not told after all, and a successor may start it.
    """
    held(connection, claim)
    change_open(connection, claim.turn_id, start_sent=sent)
