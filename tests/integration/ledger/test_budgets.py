"""Budgets: reserved before anything is spent, settled once, in the period in which an attempt ended."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
import sqlalchemy as sa

from adapters.usage import NO_USAGE, ModelUsage, Tokens, Usage, UsageSource
from ops.ledger import Attempt, AttemptEnd, Budget, BudgetKey, Claim, HostBusy, Ledger, OverBudget, Period
from ops.ledger.accounting import budgets
from ops.ledger.queue.settlement import settle
from tests.support.claiming import claim_turn
from tests.support.ledger.accounts import (
    TTL,
    a_result,
    a_usage,
    an_end,
    audit,
    begun,
    claimed,
    completed,
    tried_again,
)
from tests.support.ledger.postgresql_server import PostgresqlServer
from tests.support.ledger.processes import Crew
from tests.support.waiting import until


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


NOON = at("2026-11-22T12:00")  # a Sunday
WEB = BudgetKey("project", "web", Period.DAY)
LABELS = {"project": "web"}
DAY = 86_400.0


def at_noon(ledger: Ledger, turn_id: str = "t1", now: float = NOON, **fields: Any) -> Claim:
    return claimed(ledger, turn_id, now=now, **{"labels": LABELS, **fields})


def begin(ledger: Ledger, claim: Claim, now: float = NOON, **fields: Any) -> Attempt | HostBusy | OverBudget:
    number = claim.last.attempt + 1 if claim.last else 1
    place = {"host": "local", "session_id": None, "resume": False, "spool_id": f"{claim.turn_id}.{number}"}
    return ledger.queue.begin_attempt(claim, now=now, **{**place, **fields})


def stand(ledger: Ledger, now: float = NOON, key: BudgetKey = WEB) -> tuple[float, float]:
    """What is spent, and what is reserved."""
    (found,) = (row for row in ledger.budgets.all_of(now) if (row.name, row.value, row.period) == key)
    return found.spent_usd, found.reserved_usd


@pytest.mark.parametrize(
    ("period", "now", "start", "end"),
    [
        (Period.DAY, "2026-11-22T00:00", "2026-11-22", "2026-11-23"),
        (Period.DAY, "2026-12-31T23:59:59.999", "2026-12-31", "2027-01-01"),
        (Period.WEEK, "2026-11-22T12:00", "2026-11-16", "2026-11-23"),
        (Period.WEEK, "2026-11-23T00:00", "2026-11-23", "2026-11-30"),
        (Period.WEEK, "2027-01-01T12:00", "2026-12-28", "2027-01-04"),
        (Period.MONTH, "2028-02-29T12:00", "2028-02-01", "2028-03-01"),
        (Period.MONTH, "2026-01-31T12:00", "2026-01-01", "2026-02-01"),
        (Period.MONTH, "2026-12-01T00:00", "2026-12-01", "2027-01-01"),
    ],
)
def test_periods_follow_the_utc_calendar(period: Period, now: str, start: str, end: str) -> None:
    assert (period.start(at(now)), period.end(at(now))) == (at(start), at(end))


def test_total_begins_once_and_never_ends() -> None:
    assert (Period.TOTAL.start(NOON), Period.TOTAL.end(NOON)) == (0.0, None)


def test_attempt_reserves_its_max_cost_and_its_end_counts_its_cost(ledger: Ledger, ledger_url: str) -> None:
    ledger.budgets.put(WEB, 50.0, 1.0, NOON)
    claim = at_noon(ledger, max_cost_usd=2.5)
    begin(ledger, claim)
    assert stand(ledger) == (0.0, 2.5)
    ledger.queue.settle(claim, a_result(), NOON + 5, an_end(used=a_usage(0.25)))
    assert stand(ledger) == (0.25, 0.0)
    audit(ledger_url)


def test_request_without_max_cost_reserves_what_the_budget_says(ledger: Ledger) -> None:
    assert ledger.budgets.put(WEB, 50.0, 0.75, NOON) == Budget(*WEB, 50.0, 0.75, 0.0, 0.0, at("2026-11-23"))
    begin(ledger, at_noon(ledger))
    assert stand(ledger) == (0.0, 0.75)


def test_attempt_that_fits_exactly_begins_and_the_next_is_refused(ledger: Ledger, ledger_url: str) -> None:
    ledger.budgets.put(WEB, 1.0, 0.25, NOON)
    completed(ledger, "spent", a_usage(0.25), NOON, labels=LABELS)
    for number in range(3):
        assert isinstance(begin(ledger, at_noon(ledger, f"t{number}")), Attempt)
    claim = at_noon(ledger, "over", max_cost_usd=0.1)
    before = ledger.reports.turn("over")
    refused = begin(ledger, claim)
    assert refused == OverBudget(Budget(*WEB, 1.0, 0.25, 0.25, 0.75, at("2026-11-23")), 0.1)
    assert ledger.reports.turn("over") == before
    assert ledger.hosts.open_attempts() == {"local": 3}
    assert ledger.queue.renew([claim], NOON, TTL).held == {"over"}
    audit(ledger_url)


def test_other_labels_and_none_are_not_limited(ledger: Ledger) -> None:
    ledger.budgets.put(WEB, 1.0, 1.0, NOON)
    for number, labels in enumerate(({}, {"project": "shop"}, {"team": "web"}, {"PROJECT": "web"})):
        assert isinstance(begin(ledger, at_noon(ledger, f"t{number}", labels=labels, max_cost_usd=9.0)), Attempt)
    assert stand(ledger) == (0.0, 0.0)


def test_turn_reserves_in_all_its_budgets_or_in_none(ledger: Ledger, ledger_url: str) -> None:
    team, month = BudgetKey("team", "blue", Period.DAY), WEB._replace(period=Period.MONTH)
    for key, limit in ((WEB, 9.0), (month, 9.0), (team, 1.0)):
        ledger.budgets.put(key, limit, 0.5, NOON)
    both = {**LABELS, "team": "blue"}
    refused = begin(ledger, at_noon(ledger, "t1", labels=both, max_cost_usd=2.0))
    assert isinstance(refused, OverBudget)
    assert (refused.budget.name, refused.wanted_usd) == ("team", 2.0)
    assert [stand(ledger, key=key) for key in (WEB, month, team)] == [(0.0, 0.0)] * 3
    begin(ledger, at_noon(ledger, "t2", labels=both))
    assert [stand(ledger, key=key) for key in (WEB, month, team)] == [(0.0, 0.5)] * 3
    audit(ledger_url)


def test_greatest_max_cost_is_refused_like_any_other(ledger: Ledger) -> None:
    ledger.budgets.put(WEB, 10_000_000.0, 1.0, NOON)
    assert isinstance(begin(ledger, at_noon(ledger, max_cost_usd=1.7e308)), OverBudget)


def test_full_host_reserves_nothing(ledger: Ledger) -> None:
    ledger.budgets.put(WEB, 50.0, 1.0, NOON)
    begin(ledger, at_noon(ledger, "t1"), slots=1)
    assert begin(ledger, at_noon(ledger, "t2"), slots=1) == HostBusy("local", 1)
    assert stand(ledger) == (0.0, 1.0)


def test_new_period_begins_with_nothing_spent_and_what_is_open_reserved(ledger: Ledger, ledger_url: str) -> None:
    total = WEB._replace(period=Period.TOTAL)
    for key in (WEB, total):
        ledger.budgets.put(key, 2.0, 1.0, NOON)
    begin(ledger, at_noon(ledger, "open"))
    completed(ledger, "t1", a_usage(0.75), NOON, labels=LABELS)
    assert isinstance(begin(ledger, at_noon(ledger, "t2")), OverBudget)
    midnight = at("2026-11-23")
    assert stand(ledger, midnight - 1) == (0.75, 1.0)
    assert stand(ledger, midnight) == (0.0, 1.0)
    assert stand(ledger, midnight, total) == (0.75, 1.0)
    ledger.budgets.put(total, 9.0, 1.0, NOON)
    assert isinstance(begin(ledger, at_noon(ledger, "t3", midnight), midnight), Attempt)
    assert stand(ledger, midnight) == (0.0, 2.0)
    audit(ledger_url)


def test_cost_counts_in_the_period_in_which_the_attempt_ended(ledger: Ledger, ledger_url: str) -> None:
    ledger.budgets.put(WEB, 50.0, 1.0, NOON)
    completed(ledger, "before", a_usage(0.5), NOON, labels=LABELS)
    claim = at_noon(ledger)
    begin(ledger, claim)
    ledger.queue.settle(claim, a_result(), NOON + DAY, an_end(used=a_usage(0.25)))
    assert stand(ledger, NOON + DAY) == (0.25, 0.0)
    audit(ledger_url)


def test_slow_clock_brings_no_period_back(ledger: Ledger, ledger_url: str) -> None:
    ledger.budgets.put(WEB, 50.0, 1.0, NOON)
    midnight = at("2026-11-23")
    completed(ledger, "ahead", a_usage(0.5), midnight, labels=LABELS)
    completed(ledger, "behind", a_usage(0.25), midnight - 60, labels=LABELS)
    assert stand(ledger, midnight - 30) == stand(ledger, midnight) == (0.5, 0.0)
    audit(ledger_url)


def test_beginning_that_is_repeated_reserves_once(ledger: Ledger, ledger_url: str) -> None:
    ledger.budgets.put(WEB, 1.0, 1.0, NOON)
    claim = at_noon(ledger)
    assert begin(ledger, claim) == begin(ledger, claim)
    assert stand(ledger) == (0.0, 1.0)
    audit(ledger_url)


def test_reservation_outlives_its_worker(ledger: Ledger) -> None:
    ledger.budgets.put(WEB, 1.0, 1.0, NOON)
    begin(ledger, at_noon(ledger))
    successor = claim_turn(ledger, "t1", "w2", NOON + TTL, TTL)
    assert isinstance(successor, Claim)
    assert isinstance(begin(ledger, at_noon(ledger, "t2")), OverBudget)
    ledger.queue.wait(successor, NOON + TTL, "host_lost", NOON + TTL, an_end(used=NO_USAGE, outcome="host_lost"))
    assert isinstance(begin(ledger, at_noon(ledger, "t3")), Attempt)


@pytest.mark.parametrize(
    "end",
    [
        lambda ledger, claim, end: ledger.queue.wait(claim, NOON + 600, "overloaded", NOON, end),
        lambda ledger, claim, end: ledger.queue.settle(claim, a_result(), NOON, end),
    ],
    ids=["wait", "settle"],
)
def test_every_end_of_an_attempt_settles_its_reservation(
    ledger: Ledger, ledger_url: str, end: Callable[[Ledger, Claim, AttemptEnd], object]
) -> None:
    ledger.budgets.put(WEB, 50.0, 1.0, NOON)
    claim = at_noon(ledger)
    begin(ledger, claim)
    end(ledger, claim, an_end(used=a_usage(0.25)))
    assert stand(ledger) == (0.25, 0.0)
    audit(ledger_url)


def test_end_that_is_booked_twice_counts_once(ledger: Ledger, ledger_url: str) -> None:
    ledger.budgets.put(WEB, 50.0, 1.0, NOON)
    begin(ledger, at_noon(ledger, "other"))
    claim = at_noon(ledger)
    begin(ledger, claim)
    claim = tried_again(ledger, claim, an_end(used=a_usage(0.25)), NOON)
    ledger.queue.settle(claim, a_result(), NOON, an_end(used=a_usage(0.25)))
    assert stand(ledger) == (0.25, 1.0)
    audit(ledger_url)


def test_every_attempt_of_a_turn_reserves_and_counts(ledger: Ledger, ledger_url: str) -> None:
    ledger.budgets.put(WEB, 1.0, 0.5, NOON)
    claim = at_noon(ledger)
    for number in (1, 2):
        assert isinstance(begin(ledger, claim, spool_id=f"s{number}"), Attempt)
        claim = tried_again(ledger, claim, an_end(number, a_usage(0.375), "overloaded"), NOON)
    assert isinstance(begin(ledger, claim, spool_id="s3"), OverBudget)
    assert stand(ledger) == (0.75, 0.0)
    audit(ledger_url)


@pytest.mark.parametrize(
    ("used", "cost"),
    [
        (a_usage(0.5, UsageSource.STREAM), 0.5),
        (a_usage(None, UsageSource.STREAM), 0.0),
        (a_usage(None), 0.0),
        (NO_USAGE, 0.0),
        (Usage({"opus": ModelUsage(Tokens(1), 0.5), "new": ModelUsage(Tokens(2))}, UsageSource.RESULT), 0.5),
    ],
    ids=["priced estimate", "unpriced estimate", "unpriced", "nothing", "partly priced"],
)
def test_what_is_known_of_a_cost_counts(ledger: Ledger, ledger_url: str, used: Usage, cost: float) -> None:
    ledger.budgets.put(WEB, 50.0, 1.0, NOON)
    completed(ledger, "t1", used, NOON, labels=LABELS)
    assert stand(ledger) == (cost, 0.0)
    audit(ledger_url)


@pytest.mark.parametrize("estimate", [0.5, 0.125, None])
def test_late_usage_takes_the_place_of_an_estimate(
    ledger: Ledger, ledger_url: str, estimate: float | None
) -> None:
    ledger.budgets.put(WEB, 50.0, 1.0, NOON)
    completed(ledger, "t1", a_usage(estimate, UsageSource.STREAM), NOON, labels=LABELS)
    for _ in range(2):
        ledger.accounting.amend("t1", 1, a_usage(0.25, UsageSource.SESSION_FILES))
        assert stand(ledger) == (0.25, 0.0)
    audit(ledger_url, amended=True)


def test_late_usage_of_a_period_that_is_over_costs_the_next_one_nothing(ledger: Ledger, ledger_url: str) -> None:
    month = WEB._replace(period=Period.MONTH)
    for key in (WEB, month):
        ledger.budgets.put(key, 50.0, 1.0, NOON)
    completed(ledger, "t1", a_usage(0.5, UsageSource.STREAM), NOON, labels=LABELS)
    completed(ledger, "t2", a_usage(0.125), NOON + DAY, labels=LABELS)
    ledger.accounting.amend("t1", 1, a_usage(0.25, UsageSource.SESSION_FILES))
    assert stand(ledger, NOON + DAY) == (0.125, 0.0)
    assert stand(ledger, NOON + DAY, month) == (0.375, 0.0)
    audit(ledger_url, amended=True)


def test_budget_that_is_set_later_counts_the_running_period_and_what_is_open(
    ledger: Ledger, ledger_url: str
) -> None:
    completed(ledger, "yesterday", a_usage(4.0), NOON - DAY, labels=LABELS)
    completed(ledger, "today", a_usage(0.5), NOON - 60, labels=LABELS)
    completed(ledger, "estimated", a_usage(0.25, UsageSource.STREAM), NOON - 60, labels=LABELS)
    completed(ledger, "elsewhere", a_usage(8.0), NOON - 60, labels={"project": "shop"})
    claim = at_noon(ledger, "open")
    begin(ledger, claim)
    begin(ledger, at_noon(ledger, "open-elsewhere", labels={}))
    now = ledger.budgets.put(WEB, 50.0, 2.0, NOON)
    assert (now.spent_usd, now.reserved_usd) == (0.75, 2.0)
    assert ledger.budgets.put(WEB._replace(period=Period.TOTAL), 50.0, 2.0, NOON).spent_usd == 4.75
    ledger.queue.settle(claim, a_result("open"), NOON, an_end(used=a_usage(0.25)))
    assert stand(ledger) == (1.0, 0.0)
    audit(ledger_url)


def test_changed_budget_keeps_its_sums(ledger: Ledger, ledger_url: str) -> None:
    ledger.budgets.put(WEB, 50.0, 1.0, NOON)
    completed(ledger, "t1", a_usage(0.5), NOON, labels=LABELS)
    begin(ledger, at_noon(ledger, "t2"))
    assert ledger.budgets.put(WEB, 1.75, 0.5, NOON) == Budget(*WEB, 1.75, 0.5, 0.5, 1.0, at("2026-11-23"))
    assert isinstance(begin(ledger, at_noon(ledger, "t3")), OverBudget)
    ledger.budgets.put(WEB, 2.0, 0.5, NOON)
    assert isinstance(begin(ledger, at_noon(ledger, "t4")), Attempt)
    audit(ledger_url)


def test_removed_budget_limits_nothing_and_leaves_nothing(ledger: Ledger, ledger_url: str) -> None:
    ledger.budgets.put(WEB, 1.0, 1.0, NOON)
    claim = at_noon(ledger)
    begin(ledger, claim)
    assert ledger.budgets.remove(WEB)
    assert not ledger.budgets.remove(WEB)
    assert isinstance(begin(ledger, at_noon(ledger, "t2")), Attempt)
    ledger.queue.settle(claim, a_result(), NOON, an_end())
    assert ledger.budgets.all_of(NOON) == []
    audit(ledger_url)


def _begin_one(number: int, url: str) -> bool:
    with Ledger.open(url) as ledger:
        claim = at_noon(ledger, f"t{number}", max_cost_usd=0.25)
        return isinstance(begin(ledger, claim, host=f"host{number}"), Attempt)


def test_eight_that_start_at_once_do_not_reserve_more_than_there_is(
    ledger: Ledger, ledger_url: str, crew: Crew
) -> None:
    ledger.budgets.put(WEB, 0.75, 1.0, NOON)
    assert sum(crew.together(_begin_one, ledger_url)) == 3
    assert stand(ledger) == (0.0, 0.75)
    audit(ledger_url)


def test_threads_of_a_worker_do_not_reserve_more_than_there_is(ledger: Ledger, ledger_url: str) -> None:
    ledger.budgets.put(WEB, 0.75, 0.25, NOON)
    claims = [at_noon(ledger, f"t{number}") for number in range(5)]
    answers: list[object] = []
    threads = [threading.Thread(target=lambda c=c: answers.append(begin(ledger, c))) for c in claims]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(type(answer).__name__ for answer in answers) == ["Attempt"] * 3 + ["OverBudget"] * 2
    audit(ledger_url)


KEYS = [BudgetKey(name, "x", period) for name in ("a", "b", "c") for period in (Period.DAY, Period.TOTAL)]


def _work_or_set(number: int, url: str) -> None:
    """Seven processes run turns in budgets that the eighth sets, changes and removes."""
    rng = random.Random(number)
    with Ledger.open(url) as ledger:
        for turn in range(7):
            if number == 0:
                for key in rng.sample(KEYS, 3):
                    ledger.budgets.put(key, 1000.0, 0.25, NOON)
                ledger.budgets.remove(rng.choice(KEYS))
                continue
            labels = dict.fromkeys(rng.sample(("a", "b", "c"), 3), "x")
            turn_id = f"w{number}t{turn}"
            estimate = a_usage(0.125, rng.choice((UsageSource.RESULT, UsageSource.STREAM)))
            completed(ledger, turn_id, estimate, NOON, labels=labels)
            ledger.accounting.amend(turn_id, 1, a_usage(0.25, UsageSource.SESSION_FILES))


def test_budgets_that_are_set_while_seven_processes_spend_miss_nothing(
    ledger: Ledger, ledger_url: str, crew: Crew
) -> None:
    ledger.reports.queue_depths()
    crew.together(_work_or_set, ledger_url)
    for key in KEYS:
        ledger.budgets.put(key, 1000.0, 0.25, NOON)
    audit(ledger_url, amended=True)
    assert {row.reserved_usd for row in ledger.budgets.all_of(NOON)} == {0.0}


def test_budget_that_is_set_while_an_end_is_being_booked_counts_it(postgresql: PostgresqlServer) -> None:
    url = postgresql.new_database()
    with Ledger.open(url) as ledger:
        claim = at_noon(ledger)
        begin(ledger, claim)
        setting = threading.Thread(target=ledger.budgets.put, args=(WEB, 50.0, 1.0, NOON))
        with ledger._database.write() as connection:
            settle(connection, claim, a_result(), NOON, an_end(used=a_usage(0.25)))
            setting.start()
            until(lambda: _waiting_for_the_table(ledger), "the budget to be set once the end is booked")
        setting.join()
        assert stand(ledger) == (0.25, 0.0)
        audit(url)


def _waiting_for_the_table(ledger: Ledger) -> bool:
    waiting = sa.text("SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'attempts'::regclass")
    with ledger._database.read() as connection:
        return bool(connection.scalar(waiting))


def test_turn_without_labels_locks_no_budget(ledger: Ledger) -> None:
    ledger.budgets.put(WEB, 50.0, 1.0, NOON)
    begun(ledger, claimed(ledger, "t1"))
    with ledger._database.write() as connection:
        assert budgets._locked(connection, "t1") == []
