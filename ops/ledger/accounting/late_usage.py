"""Usage read after its attempt was booked, because the attempt's host was unreachable until then."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import sqlalchemy as sa
from pydantic import ValidationError
from sqlalchemy import Connection

from adapters.protocol.request import TurnRequest
from adapters.usage import Usage, UsageSource
from ops.ledger.accounting import budgets
from ops.ledger.accounting.booking import COMPLETED, count_failure, enter, known_cost
from ops.ledger.schema import attempts, turns, usage

# An open attempt has no source yet: it is neither.
_OBSERVED = attempts.c.usage_source.in_([source for source in UsageSource if source.observed])
_ESTIMATED = sa.not_(_OBSERVED)

_COLUMNS = ("turn_id", "attempt", "host", "seal", "session_id", "resume", "ended_at", "outcome", "workspace")


@dataclass(frozen=True, slots=True)
class SpoolRow:
    """The attempt a spool belongs to."""

    turn_id: str
    attempt: int
    host: str
    seal: str = field(repr=False)
    agent: str
    session_id: str | None
    resume: bool
    ended_at: float | None  # None: open, the spool is yet to be read
    outcome: str | None
    usage_observed: bool  # False: open, or booked with an estimate or nothing and needs amending
    # Set if the usage needs amending, unless only a newer runturn can read it: the command built from it names
    # session files.
    request: TurnRequest | None
    owner: str | None  # of the turn
    owner_expires: float | None
    workspace: str | None = None  # made for it

    def owned(self, now: float) -> bool:
        """Return True if a worker owns the turn and its lease has not expired."""
        return self.owner is not None and self.owner_expires is not None and self.owner_expires > now

    @property
    def unreadable(self) -> bool:
        """True if the usage needs amending, but this runturn cannot read the request."""
        return self.ended_at is not None and not self.usage_observed and self.request is None


def by_spool(connection: Connection, spool_ids: Collection[str]) -> dict[str, SpoolRow]:
    """Return the attempts these spools belong to; spools that this ledger does not record are left out."""
    columns = [attempts.c[name] for name in ("spool_id", *_COLUMNS)]
    request = sa.case((_ESTIMATED, turns.c.request)).label("request")  # up to 10 MB: only where needed
    owner = (turns.c.owner, turns.c.owner_expires)
    query = sa.select(*columns, turns.c.agent, *owner, _OBSERVED.label("observed"), request)
    query = query.join_from(attempts, turns).where(attempts.c.spool_id.in_(spool_ids))
    return {
        row["spool_id"]: SpoolRow(
            **{name: row[name] for name in _COLUMNS},
            agent=row["agent"],
            usage_observed=bool(row["observed"]),
            request=_readable(row["request"]),
            owner=row["owner"],
            owner_expires=row["owner_expires"],
        )
        for row in connection.execute(query).mappings()
    }


def _readable(request: str | None) -> TurnRequest | None:
    """Return a stored request, if readable: one of a newer runturn must not hide the other spools."""
    try:
        return TurnRequest.model_validate_json(request) if request else None
    except ValidationError:
        return None


def amend(connection: Connection, turn_id: str, attempt: int, observed: Usage) -> bool:
    """Replace what an attempt was booked with, an estimate or nothing, with usage observed later.

    Return False and change nothing if no such attempt has ended, its usage was already observed, or this one was
    not. The bill dates it to the attempt's end; the result of a settled turn stays as reported. Killed before: the
    spool is still there, and the next cleanup of the host reads it. So remove it after this.

    Its source is written first: it becomes an observed one only once. The totals keep the estimate, which is in no
    other number: they only ever grow.
    """
    if not observed.source.observed:
        return False
    this = sa.and_(attempts.c.turn_id == turn_id, attempts.c.attempt == attempt)
    source = {"usage_source": observed.source, "usage_complete": observed.complete}
    if connection.execute(attempts.update().where(this, _ESTIMATED).values(source)).rowcount == 0:
        return False
    booked = sa.and_(usage.c.turn_id == turn_id, usage.c.attempt == attempt)
    counted = int(connection.scalar(sa.select(sa.func.sum(usage.c.cost_nano)).where(booked)) or 0)
    connection.execute(usage.delete().where(booked))
    columns = (turns.c.agent, *(attempts.c[name] for name in ("agent_version", "outcome", "ended_at")))
    ended = sa.select(*columns).join_from(attempts, turns)
    agent, version, outcome, ended_at = connection.execute(ended.where(this)).one()
    enter(connection, turn_id, attempt, agent, observed)
    if outcome != COMPLETED:
        count_failure(connection, agent, version, outcome, observed, ended_at)
    budgets.correct(connection, turn_id, known_cost(observed) - counted, ended_at)
    return True
