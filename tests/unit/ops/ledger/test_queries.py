"""History, bills and depths."""

from __future__ import annotations

from adapters.usage import Tokens
from ops.ledger import CostKey, Ledger, OutcomeTotals, State
from tests.support.ledger.accounts import a_failure, a_request, a_usage, claimed, completed


def test_history_is_newest_first_and_filtered(ledger: Ledger) -> None:
    completed(ledger, "old", a_usage(), now=10.0, labels={"team": "web", "ci": "yes"})
    completed(ledger, "far", a_usage(), now=20.0, host="far", labels={"team": "ops"})
    ledger.queue.submit_many([a_request("new", agent="codex", labels={"team": "web"})], 30.0)
    ledger.queue.submit_many([a_request("gone")], 25.0)
    ledger.queue.settle_unclaimed("gone", a_failure("gone"), 26.0)

    def ids(limit: int = 50, **filters: object) -> list[str]:
        return [row.turn_id for row in ledger.reports.history(limit, **filters)]  # type: ignore[arg-type]

    assert ids() == ["new", "gone", "far", "old"]
    assert ids(2) == ["new", "gone"]
    assert ids(status="completed") == ["far", "old"]
    assert ids(status="queued") == ["new"]
    assert ids(status="cancelled") == ["gone"]
    assert ids(agent="codex") == ["new"]
    assert ids(host="far") == ["far"]
    assert ids(label=("team", "web")) == ["new", "old"]
    assert ids(label=("team", "web"), status="completed") == ["old"]
    assert ids(label=("team", "nobody")) == []
    assert ledger.reports.history(label=("ci", "yes"))[0].labels == {"ci": "yes", "team": "web"}


def test_bill_is_split_by_every_key(ledger: Ledger) -> None:
    completed(ledger, "t1", a_usage(0.25), labels={"team": "web", "ci": "yes"})
    completed(ledger, "t2", a_usage(0.50, model="haiku"), host="far", labels={"team": "web"})
    completed(ledger, "t3", a_usage(1.0), agent="codex")

    def bill(by: CostKey) -> list[tuple[str, int, float | None]]:
        return [(row.key, row.turns, row.spent.cost_usd) for row in ledger.reports.cost(by)]

    assert bill(CostKey.MODEL) == [("opus", 2, 1.25), ("haiku", 1, 0.5)]
    assert bill(CostKey.AGENT) == [("codex", 1, 1.0), ("claude-code", 2, 0.75)]
    assert bill(CostKey.HOST) == [("local", 2, 1.25), ("far", 1, 0.5)]
    assert bill(CostKey.LABEL) == [("team=web", 2, 0.75), ("ci=yes", 1, 0.25)]


def test_bill_since_a_time_counts_what_was_booked_since(ledger: Ledger) -> None:
    completed(ledger, "t1", a_usage(0.25), now=10.0)  # booked at 15
    completed(ledger, "t2", a_usage(0.50), now=20.0)
    (row,) = ledger.reports.cost(CostKey.MODEL, since=16.0)
    assert (row.turns, row.spent.cost_usd, row.spent.tokens) == (1, 0.5, Tokens(100, 20, 3000, 400))
    assert ledger.reports.cost(CostKey.MODEL, since=26.0) == []


def test_depths_count_what_is_not_settled(ledger: Ledger) -> None:
    assert ledger.reports.queue_depths() == {State.QUEUED: 0, State.RUNNING: 0, State.WAITING: 0}
    completed(ledger, "done", a_usage())
    ledger.queue.submit_many([a_request("q1")], 1.0)
    ledger.queue.submit_many([a_request("q2")], 1.0)
    claimed(ledger, "r1")
    ledger.queue.wait(claimed(ledger, "w1"), 60.0, "overloaded", 2.0)
    assert ledger.reports.queue_depths() == {State.QUEUED: 2, State.RUNNING: 1, State.WAITING: 1}
    assert ledger.reports.turn("w1").wait_reason == "overloaded"


def test_outcomes_are_counted_by_agent_and_kind(ledger: Ledger) -> None:
    completed(ledger, "t1", a_usage())
    completed(ledger, "t2", a_usage())
    ledger.queue.submit_many([a_request("t3", agent="codex")], 1.0)
    ledger.queue.settle_unclaimed("t3", a_failure("t3"), 2.0)
    assert set(ledger.reports.totals().outcomes) == {
        OutcomeTotals("claude-code", "completed", 2),
        OutcomeTotals("codex", "turn_cancelled", 1),
    }
