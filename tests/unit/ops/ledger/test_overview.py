"""What a live view asks of the ledger, on both databases; and that it asks no more than it has to."""

from __future__ import annotations

from dataclasses import replace

import sqlalchemy as sa

from adapters.usage import Usage, UsageSource
from ops.ledger import HostLoad, Ledger, Spending
from ops.ledger.schema import usage
from tests.support.ledger.accounts import a_request, a_result, a_usage, an_end, begun, claimed, completed


def test_running_turns_come_oldest_first_and_all_are_counted(ledger: Ledger) -> None:
    for number in (3, 1, 2):
        begun(ledger, claimed(ledger, f"t{number}", now=number), f"s{number}", number, host=f"h{number}")
    ledger.queue.submit_many([a_request("queued")], 4.0)
    completed(ledger, "ended", a_usage(), 5.0)
    count, oldest = ledger.reports.running(2)
    assert count == 3
    assert [(turn.turn_id, turn.host, turn.attempt, turn.started_at) for turn in oldest] == [
        ("t1", "h1", 1, 1.0),
        ("t2", "h2", 1, 2.0),
    ]
    assert oldest[0].owner_expires is not None and oldest[0].owner_expires > 1.0


def test_a_turn_without_an_attempt_yet_runs_too(ledger: Ledger) -> None:
    claimed(ledger, "t1", now=1.0)
    count, (turn,) = ledger.reports.running(10)
    assert (count, turn.started_at, turn.attempt, turn.created_at) == (1, None, 0, 1.0)


def test_spending_is_what_ended_since_and_was_observed(ledger: Ledger) -> None:
    assert ledger.reports.spending([0.0, 100.0]) == [Spending(0, None, 0), Spending(0, None, 0)]
    completed(ledger, "early", a_usage(0.5), 10.0)
    completed(ledger, "late", a_usage(0.25), 200.0)
    completed(ledger, "unpriced", a_usage(None), 200.0)
    completed(ledger, "estimated", Usage(a_usage(9.0).by_model, UsageSource.STREAM, complete=False), 200.0)
    assert ledger.reports.spending([0.0, 100.0]) == [Spending(10_560, 0.75, 3520), Spending(7040, 0.25, 3520)]


def test_spending_reads_the_usage_of_those_attempts_only(sqlite_url: str) -> None:
    """Else it would take longer with every turn that was ever run."""
    statements: list[str] = []
    with Ledger.open(sqlite_url) as ledger:
        engine = ledger._database.engine
        sa.event.listen(engine, "before_cursor_execute", lambda *given: statements.append(given[2]))
        ledger.reports.spending([100.0, 200.0])
        (asked,) = (statement for statement in statements if usage.name in statement)
        with engine.connect() as connection:
            arguments = (100.0,) * asked.count("?")
            plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {asked}", arguments).all()
    assert any("attempts_by_end" in step[3] for step in plan), plan
    assert not any(step[3].startswith("SCAN") for step in plan), plan


def test_load_of_a_host_is_that_of_the_attempts_that_ended_since(ledger: Ledger) -> None:
    for number, (host, at, cpu_ms, memory) in enumerate(
        [("h1", 10.0, 9_000, 900), ("h1", 200.0, 1_500, 300), ("h1", 200.0, 500, 200), ("h2", 200.0, None, None)]
    ):
        claim = claimed(ledger, f"t{number}", now=at)
        begun(ledger, claim, f"s{number}", at, host=host)
        end = replace(an_end(), cpu_ms=cpu_ms, peak_memory_bytes=memory)
        ledger.queue.settle(claim, a_result(f"t{number}"), at, end)
    assert ledger.reports.host_loads(100.0) == {"h1": HostLoad(2_000, 300), "h2": HostLoad(None, None)}
