"""Requests, bills and results to test with, and an audit of the books."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, TypeVar

import sqlalchemy as sa

from adapters.protocol.request import TurnRequest
from adapters.protocol.result import ErrorInfo, Status, TurnResult, totals
from adapters.usage import ModelUsage, Tokens, Usage, UsageSource
from ops.ledger import Attempt, AttemptEnd, Claim, Ledger
from ops.ledger.schema import (
    TOKEN_KINDS,
    attempts,
    budget_reservations,
    budgets,
    failure_totals,
    model_totals,
    outcome_totals,
    turn_labels,
    turns,
    usage,
)
from tests.support.claiming import claim_turn

T = TypeVar("T")
TTL = 10.0
PLACE = {"agent": "claude-code", "host": "local", "workspace": "/srv/shop"}


def a_request(turn_id: str = "t1", **fields: Any) -> TurnRequest:
    return TurnRequest(turn_id=turn_id, prompt="Fix the tests", workspace="/srv/shop", **fields)


def a_usage(cost: float | None = 0.25, source: UsageSource = UsageSource.RESULT, model: str = "opus") -> Usage:
    return Usage({model: ModelUsage(Tokens(100, 20, 3000, 400), cost)}, source)


def an_end(attempt: int = 1, used: Usage | None = None, outcome: str = "completed") -> AttemptEnd:
    return AttemptEnd(attempt, used or a_usage(), outcome, 0)


def a_result(turn_id: str = "t1", text: str = "done", used: Usage | None = None, **fields: Any) -> TurnResult:
    bill = totals(used or a_usage())
    return TurnResult(turn_id=turn_id, status=Status.COMPLETED, text=text, usage=bill, **fields)


def a_failure(turn_id: str = "t1", kind: str = "turn_cancelled", status: Status = Status.CANCELLED) -> TurnResult:
    return TurnResult(
        turn_id=turn_id, status=status, error=ErrorInfo(kind=kind, message="stopped", retryable=False)
    )


def claimed(ledger: Ledger, turn_id: str = "t1", owner: str = "w1", now: float = 1.0, **fields: Any) -> Claim:
    """Submit a turn if need be, and claim it."""
    ledger.queue.submit_many([a_request(turn_id, **fields)], now)
    claim = claim_turn(ledger, turn_id, owner, now, TTL)
    assert isinstance(claim, Claim), claim
    return claim


def tried_again(ledger: Ledger, claim: Claim, ended: AttemptEnd, now: float) -> Claim:
    """Book an attempt, and claim the turn for the next one at once."""
    ledger.queue.wait(claim, now, ended.outcome, now, ended)
    again = claim_turn(ledger, claim.turn_id, claim.owner, now, TTL)
    assert again is not None
    return again


def taken(
    ledger: Ledger, now: float, places: Collection[str] | None = None, limit: int = 100, **asked: Any
) -> list[str]:
    """The turns that a new worker with room in these places, or anywhere, takes; in that order."""

    def admits(place: str) -> bool:
        return places is None or place in places

    return [claim.turn_id for claim in ledger.queue.take(f"taker-{now}", admits, now, TTL, limit, **asked)]


def begun(ledger: Ledger, claim: Claim, spool_id: str = "s1", now: float = 1.0, **fields: Any) -> Attempt:
    given = {"host": "local", "session_id": "session-1", "resume": False, **fields}
    attempt = ledger.queue.begin_attempt(claim, spool_id=spool_id, now=now, **given)
    assert isinstance(attempt, Attempt), attempt
    return attempt


def completed(ledger: Ledger, turn_id: str, used: Usage, now: float = 1.0, **fields: Any) -> None:
    """Run a turn from its submission to its result."""
    claim = claimed(ledger, turn_id, now=now, **fields)
    begun(ledger, claim, f"spool-{turn_id}", now, host=fields.get("host") or "local")
    ledger.queue.settle(claim, a_result(turn_id, used=used), now + 5, an_end(used=used))


def audit(url: str, amended: bool = False) -> dict[str, int]:
    """Check that the totals and budgets are the sums of what was booked; returns the observed tokens by model.

    `amended`: the totals hold estimates that are in the books no more.
    """
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.connect() as connection:
        booked = _booked(connection)
        columns = [model_totals.c[name] for name in (*TOKEN_KINDS, "cost_nano", "unpriced_tokens")]
        query = sa.select(model_totals.c.agent, model_totals.c.model, model_totals.c.observed, *columns)
        counted = {tuple(row)[:3]: tuple(row)[3:] for row in connection.execute(query)}
        if amended:
            counted, booked = _observed(counted), _observed(booked)
        assert counted == booked
        _check_outcomes(connection)
        _check_failures(connection)
        _check_budgets(connection)
        still_open = sa.select(sa.func.count()).select_from(attempts.join(turns)).where(
            turns.c.state == "settled", attempts.c.ended_at.is_(None)
        )  # fmt: skip
        assert connection.scalar(still_open) == 0
    engine.dispose()
    return {model: sum(amounts[:4]) for (_, model, observed), amounts in booked.items() if observed}


def _observed(lines: dict[tuple[Any, ...], T]) -> dict[tuple[Any, ...], T]:
    return {key: line for key, line in lines.items() if key[2]}


def _booked(connection: sa.Connection) -> dict[tuple[str, str, bool], tuple[Any, ...]]:
    sums: dict[tuple[str, str, bool], list[Any]] = {}
    query = sa.select(turns.c.agent, usage).join_from(usage, turns, turns.c.turn_id == usage.c.turn_id)
    for row in connection.execute(query).mappings():
        line = sums.setdefault((row["agent"], row["model"], row["observed"]), [0, 0, 0, 0, None, 0])
        for place, kind in enumerate(TOKEN_KINDS):
            line[place] += row[kind]
        if row["cost_nano"] is None:
            line[5] += sum(row[kind] for kind in TOKEN_KINDS)
        else:
            line[4] = (line[4] or 0) + row["cost_nano"]
    return {key: tuple(line) for key, line in sums.items()}


def _check_outcomes(connection: sa.Connection) -> None:
    outcome = sa.func.coalesce(turns.c.error_kind, turns.c.status)
    settled = sa.select(turns.c.agent, outcome, sa.func.count()).where(turns.c.state == "settled")
    counted = connection.execute(settled.group_by(turns.c.agent, outcome)).all()
    assert sorted(map(tuple, counted)) == sorted(map(tuple, connection.execute(sa.select(outcome_totals))))


def _check_failures(connection: sa.Connection) -> None:
    """What was spent in vain is what was observed of attempts that did not complete."""
    version = sa.func.coalesce(attempts.c.agent_version, "")
    used = sum((usage.c[kind] for kind in TOKEN_KINDS), sa.literal(0))
    query = (
        sa.select(turns.c.agent, version, attempts.c.outcome, sa.func.sum(used), sa.func.sum(usage.c.cost_nano))
        .select_from(usage.join(attempts).join(turns, turns.c.turn_id == usage.c.turn_id))
        .where(attempts.c.outcome != "completed", usage.c.observed)
        .group_by(turns.c.agent, version, attempts.c.outcome)
    )
    columns = [failure_totals.c[name] for name in ("agent", "agent_version", "outcome", "tokens", "cost_nano")]
    counted = connection.execute(sa.select(*columns)).all()
    assert sorted(map(tuple, connection.execute(query))) == sorted(map(tuple, counted))


def _check_budgets(connection: sa.Connection) -> None:
    """A budget's sums are those of its reservations, all of open attempts, and of what ended in its period."""
    held = budget_reservations.c
    open_ones = set(
        connection.execute(sa.select(attempts.c.turn_id, attempts.c.attempt).where(attempts.c.ended_at.is_(None)))
    )
    reserving = set(connection.execute(sa.select(held.turn_id, held.attempt)))
    assert reserving <= open_ones
    for budget in connection.execute(sa.select(budgets)).mappings():
        ours = [held[name] == budget[name] for name in ("name", "value", "period")]
        assert budget["reserved_nano"] == _sum(connection, sa.select(held.amount_nano).where(*ours))
        cost = sa.select(usage.c.cost_nano).select_from(
            usage.join(attempts).join(turn_labels, turn_labels.c.turn_id == usage.c.turn_id)
        )
        labelled = (turn_labels.c.name == budget["name"], turn_labels.c.value == budget["value"])
        spent = _sum(connection, cost.where(*labelled, attempts.c.ended_at >= budget["period_start"]))
        assert budget["spent_nano"] == spent


def _sum(connection: sa.Connection, query: sa.Select[Any]) -> int:
    return sum(amount or 0 for amount in connection.scalars(query))
