"""Budgets: what turns with a label may cost in a period, and what they have cost in the current one.

An attempt reserves before it starts, and is refused if spent + reserved + its own reservation would exceed the
limit. When its end is booked, its cost replaces the reservation, and counts in the period in which it ended.
Known costs count, observed or estimated: the money was spent. Tokens without a price count nothing, as their cost
is unknown. Late usage replaces what was counted, unless that period is over.

A budget's row has the sums of the current period only: a lookup reads one row, and no old rows accumulate.
Changing the sums requires a lock on the row. Rows are locked in key order, and after turns, attempts, slots and
totals: no advisory lock may come later.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy import ColumnElement, Connection

from adapters.protocol.request import TurnRequest
from ops.ledger.accounting.money import dollars, nano
from ops.ledger.accounting.periods import Period
from ops.ledger.schema import attempts, budget_reservations, budgets, turn_labels, usage

_MOST_USD = 1e9  # above any limit, and within the database's integers
_POSTGRESQL_LOCK = 0x627564676574  # "budget": any number not used elsewhere
_KEY = (budgets.c.name, budgets.c.value, budgets.c.period)

# Built once, as in `rows`.
_OF_LABELS = (
    sa.select(budgets)
    .join(turn_labels, sa.and_(turn_labels.c.name == budgets.c.name, turn_labels.c.value == budgets.c.value))
    .where(turn_labels.c.turn_id == sa.bindparam("of_turn"))
    .order_by(*_KEY)
    .with_for_update(of=budgets)
)


class BudgetKey(NamedTuple):
    """Key of a budget: the label name=value of its turns, and a period."""

    name: str
    value: str
    period: Period

    def __str__(self) -> str:
        return f"{self.name}={self.value}/{self.period}"


@dataclass(frozen=True, slots=True)
class Budget:
    """What turns with a label may cost in a period, and its current sums. Money in US dollars."""

    name: str
    value: str
    period: Period
    limit_usd: float
    reserve_usd: float  # per attempt whose request has no max_cost_usd
    spent_usd: float  # by attempts that ended in the current period
    reserved_usd: float  # by open attempts
    resets_at: float | None  # start of the next period; None: never

    @property
    def key(self) -> BudgetKey:
        """The budget's key."""
        return BudgetKey(self.name, self.value, self.period)


@dataclass(frozen=True, slots=True)
class OverBudget:
    """The attempt might cost more than is left."""

    budget: Budget
    wanted_usd: float  # the reservation it would need


@dataclass(frozen=True, slots=True)
class _Account:
    """A row of `budgets`."""

    name: str
    value: str
    period: Period
    limit_nano: int
    reserve_nano: int
    period_start: float
    spent_nano: int
    reserved_nano: int

    @property
    def key(self) -> BudgetKey:
        return BudgetKey(self.name, self.value, self.period)

    def at(self, now: float) -> _Account:
        """Return the account, with nothing spent if a new period has begun. A slow clock restarts no period."""
        start = self.period.start(now)
        return replace(self, period_start=start, spent_nano=0) if start > self.period_start else self

    def ended(self, ended_at: float, cost_nano: int, released_nano: int) -> _Account:
        """Return the account after an attempt's end; one that ended in an earlier period adds no cost."""
        account = self.at(ended_at)
        cost = cost_nano if ended_at >= account.period_start else 0
        return replace(
            account, spent_nano=account.spent_nano + cost, reserved_nano=account.reserved_nano - released_nano
        )

    def wants(self, max_cost_usd: float | None) -> int:
        """Return what an attempt reserves."""
        return self.reserve_nano if max_cost_usd is None else nano(min(max_cost_usd, _MOST_USD))

    def has_room(self, wanted_nano: int) -> bool:
        """Return True if an attempt may reserve this amount."""
        return self.spent_nano + self.reserved_nano + wanted_nano <= self.limit_nano

    def record(self) -> Budget:
        """Return the account as a public record."""
        return Budget(
            *self.key,
            limit_usd=dollars(self.limit_nano),
            reserve_usd=dollars(self.reserve_nano),
            spent_usd=dollars(self.spent_nano),
            reserved_usd=dollars(self.reserved_nano),
            resets_at=self.period.end(self.period_start),
        )


def reserve(connection: Connection, request: TurnRequest, attempt: int, now: float) -> OverBudget | None:
    """Reserve for an attempt that is about to begin, in all budgets of its turn or in none."""
    if not request.labels:
        return None  # most turns of many fleets: no query needed
    accounts = [account.at(now) for account in _locked(connection, request.turn_id)]
    for account in accounts:
        wanted = account.wants(request.max_cost_usd)
        if not account.has_room(wanted):
            return OverBudget(account.record(), dollars(wanted))
    for account in accounts:
        amount = account.wants(request.max_cost_usd)
        _store(connection, replace(account, reserved_nano=account.reserved_nano + amount))
        connection.execute(_reservation(account.key, request.turn_id, attempt, amount))
    return None


def settle(connection: Connection, turn_id: str, attempt: int, cost_nano: int, ended_at: float) -> None:
    """Replace what an attempt had reserved with what it cost. Call it once, at the attempt's end.

    Write its usage first: see `_add`.
    """
    accounts = _locked(connection, turn_id)
    if not accounts:
        return
    ours = sa.and_(budget_reservations.c.turn_id == turn_id, budget_reservations.c.attempt == attempt)
    rows = connection.execute(sa.select(budget_reservations).where(ours)).mappings()
    released = {BudgetKey(row["name"], row["value"], row["period"]): row["amount_nano"] for row in rows}
    connection.execute(budget_reservations.delete().where(ours))
    for account in accounts:  # a budget set after the start may have no reservation
        _store(connection, account.ended(ended_at, cost_nano, released.get(account.key, 0)))


def correct(connection: Connection, turn_id: str, more_nano: int, ended_at: float) -> None:
    """Count late usage of an attempt that ended at `ended_at`: the difference from what was counted."""
    for account in _locked(connection, turn_id):
        _store(connection, account.ended(ended_at, more_nano, 0))


def put(connection: Connection, key: BudgetKey, limit_usd: float, reserve_usd: float, now: float) -> Budget:
    """Set what turns with a label may cost in a period. Return the budget with its current sums.

    A new budget counts what the current period has cost so far, and reserves `reserve_usd` for each open attempt.
    A changed one keeps its sums.
    """
    limit_nano, reserve_nano = nano(limit_usd), nano(reserve_usd)
    if connection.dialect.name == "postgresql":  # SQLite has one writer at a time anyway
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_POSTGRESQL_LOCK)))
    changed = budgets.update().where(_is(key)).values(limit_nano=limit_nano, reserve_nano=reserve_nano)
    if connection.execute(changed).rowcount == 0:
        _add(connection, key, limit_nano, reserve_nano, now)
    (account,) = _accounts(connection, _is(key))
    return account.at(now).record()


def _add(connection: Connection, key: BudgetKey, limit_nano: int, reserve_nano: int, now: float) -> None:
    """Insert a new budget: every end of an attempt either is counted here, or finds the budget.

    Booking usage writes to `attempts` first, and looks up budgets afterwards. An attempt that begins at this very
    moment may reserve nothing; its cost counts.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(sa.text("LOCK TABLE attempts IN SHARE MODE"))
    start = key.period.start(now)
    labelled = attempts.join(turn_labels, turn_labels.c.turn_id == attempts.c.turn_id)
    ours = sa.and_(turn_labels.c.name == key.name, turn_labels.c.value == key.value)
    spent = sa.select(sa.func.sum(usage.c.cost_nano)).select_from(labelled.join(usage, _of_attempt()))
    running = sa.select(attempts.c.turn_id, attempts.c.attempt).select_from(labelled)
    still_open = connection.execute(running.where(ours, attempts.c.ended_at.is_(None))).all()
    account = _Account(
        *key,
        limit_nano=limit_nano,
        reserve_nano=reserve_nano,
        period_start=start,
        spent_nano=int(connection.scalar(spent.where(ours, attempts.c.ended_at >= start)) or 0),
        reserved_nano=reserve_nano * len(still_open),
    )
    connection.execute(budgets.insert().values(asdict(account)))
    for turn_id, attempt in still_open:
        connection.execute(_reservation(key, turn_id, attempt, reserve_nano))


def remove(connection: Connection, key: BudgetKey) -> bool:
    """Remove a budget. Return False if there is none."""
    return connection.execute(budgets.delete().where(_is(key))).rowcount == 1


def all_of(connection: Connection, now: float) -> list[Budget]:
    """Return all budgets, ordered by label."""
    return [account.at(now).record() for account in _accounts(connection, sa.true())]


def _accounts(connection: Connection, condition: ColumnElement[bool]) -> list[_Account]:
    rows = connection.execute(sa.select(budgets).where(condition).order_by(*_KEY)).mappings()
    return [_account(row) for row in rows]


def _locked(connection: Connection, turn_id: str) -> list[_Account]:
    """Return the budgets of a turn's labels, locked until the transaction ends."""
    rows = connection.execute(_OF_LABELS, {"of_turn": turn_id}).mappings()
    return [_account(row) for row in rows]


def _account(row: sa.RowMapping) -> _Account:
    return _Account(**{**row, "period": Period(row["period"])})


def _store(connection: Connection, account: _Account) -> None:
    sums = {name: getattr(account, name) for name in ("period_start", "spent_nano", "reserved_nano")}
    connection.execute(budgets.update().where(_is(account.key)).values(sums))


def _reservation(key: BudgetKey, turn_id: str, attempt: int, amount_nano: int) -> sa.Insert:
    return budget_reservations.insert().values(
        **key._asdict(), turn_id=turn_id, attempt=attempt, amount_nano=amount_nano
    )


def _is(key: BudgetKey) -> ColumnElement[bool]:
    return sa.and_(*(column == part for column, part in zip(_KEY, key, strict=True)))


def _of_attempt() -> ColumnElement[bool]:
    return sa.and_(usage.c.turn_id == attempts.c.turn_id, usage.c.attempt == attempts.c.attempt)
