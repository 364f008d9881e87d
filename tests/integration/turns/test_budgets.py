"""A budget stops turns before an agent is started, and lets those that run come to their end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapters.errors import Retry
from adapters.protocol.result import Status, TurnResult
from ops.ledger import Budget, BudgetKey, OverBudget, Period
from tests.support.fleets.fleet import Fleet
from tests.support.fleets.site import Killed, Site
from tests.support.places import RECORDINGS
from tests.support.waiting import until
from workers.turn.budget_messages import exceeded

WEB = BudgetKey("project", "web", Period.TOTAL)  # no midnight can come in between
LABELS = {"project": "web"}
COST_USD = 0.0117  # of the recording
MONDAY = 1_795_392_000.0  # 2026-11-23 00:00 UTC


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.close()


def queue(site: Site) -> str:
    recording = str(RECORDINGS / "a_parallel_tools.jsonl")
    return site.queue(labels=LABELS, options={"recording": recording})


def stand(site: Site) -> tuple[float, float]:
    (budget,) = site.ledger.budgets.all_of(site.now())
    return budget.spent_usd, budget.reserved_usd


def test_one_turn_spends_and_the_next_is_refused_before_an_agent_starts(fleet: Fleet, recording: Path) -> None:
    fleet.start_worker()
    fleet.ledger.budgets.put(WEB, 0.015, 0.01, time.time())
    first = fleet.run(fleet.recorded(recording, labels=LABELS))
    assert (first.status, first.cost_usd) == (Status.COMPLETED, pytest.approx(COST_USD))
    second = fleet.run(fleet.recorded(recording, labels=LABELS))
    assert second.error is not None
    assert (second.status, second.error.kind, second.error.retryable) == (Status.FAILED, "budget_exceeded", False)
    assert second.error.message == (
        "budget project=web allows $0.0150 in total: $0.0117 spent, $0.0000 reserved by running turns, and this "
        "turn would reserve $0.0100; raise the budget: runturn budget set project=web USD --per total"
    )
    assert (second.attempts, second.host, second.usage_source) == (0, None, "none")
    assert [event["event"] for event in fleet.events(second.turn_id)] == ["turn_settled"]
    until(lambda: not fleet.agents(), "the end of the first turn's agent")
    assert fleet.run(fleet.recorded(recording)).status is Status.COMPLETED  # other turns go on
    fleet.assert_nothing_left()


def test_turn_starts_once_its_budget_was_raised(site: Site) -> None:
    site.ledger.budgets.put(WEB, 0.015, 0.01, site.now())
    assert [asyncio.run(site.finish(queue(site))).status for _ in range(2)] == [Status.COMPLETED, Status.FAILED]
    assert (site.starts, stand(site)) == (1, (COST_USD, 0.0))
    site.ledger.budgets.put(WEB, 0.03, 0.01, site.now())
    assert asyncio.run(site.finish(queue(site))).status is Status.COMPLETED
    assert (site.starts, stand(site)) == (2, (2 * COST_USD, 0.0))


@pytest.mark.parametrize(
    "where",
    ["before queue.begin_attempt", "after queue.begin_attempt", "before queue.settle", "after queue.settle"],
)
def test_worker_that_is_killed_has_reserved_once_and_counted_once(site: Site, where: str) -> None:
    site.ledger.budgets.put(WEB, 0.01, 0.01, site.now())
    turn_id = queue(site)

    def die(step: str) -> None:
        if step == where:
            raise Killed

    with pytest.raises(Killed):
        asyncio.run(site.work(turn_id, die))
    assert (
        stand(site)
        == {
            "before queue.begin_attempt": (0.0, 0.0),
            "after queue.begin_attempt": (0.0, 0.01),
            "before queue.settle": (0.0, 0.01),
            "after queue.settle": (COST_USD, 0.0),
        }[where]
    )
    if where != "after queue.settle":
        result = asyncio.run(site.finish(turn_id))
        assert isinstance(result, TurnResult)
        assert result.status is Status.COMPLETED
    assert (site.starts, stand(site)) == (1, (COST_USD, 0.0))


@pytest.mark.parametrize(
    ("budget", "wanted", "text"),
    [
        (
            Budget("project", "web", Period.DAY, 50.0, 1.0, 49.5, 0.25, MONDAY),
            1.0,
            "budget project=web allows $50.00 a day: $49.50 spent, $0.25 reserved by running turns, and this "
            "turn would reserve $1.00; queue the turn again after 2026-11-23 00:00 UTC, when the next day "
            "begins, or raise the budget: runturn budget set project=web USD --per day",
        ),
        (
            Budget("team", "the blue one", Period.MONTH, 5.0, 1.0, 0.0, 0.0, MONDAY),
            6.0,
            "budget team=the blue one allows $5.00 a month: $0.00 spent, $0.00 reserved by running turns, and "
            "this turn would reserve $6.00; lower the turn's max_cost_usd, "
            "or raise the budget: runturn budget set 'team=the blue one' USD --per month",
        ),
    ],
)
def test_message_says_which_budget_how_it_stands_and_what_to_do(budget: Budget, wanted: float, text: str) -> None:
    error = exceeded(OverBudget(budget, wanted))
    assert (error.message, error.retry) == (text, Retry.NEVER)
