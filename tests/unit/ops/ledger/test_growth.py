"""What workers ask of the ledger all the time does not take longer because much has happened before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa

from adapters.usage import UsageSource
from ops.ledger import Batch, Claim, CostKey, Ledger, Waiter
from tests.support.ledger.accounts import (
    TTL,
    a_request,
    a_result,
    a_usage,
    an_end,
    begun,
    claimed,
    completed,
    taken,
)
from tests.support.ledgers import tasks_of

GROWING = ("turns", "turn_labels", "attempts", "usage", "sessions", "waiters", "events")
# Reads of an index that has open things only, in its order, up to the first one that is wanted.
HARMLESS = "turns_ready"

Operation = Callable[[Ledger, Claim], object]

ASKED_BY_WORKERS: dict[str, Operation] = {
    "take": lambda ledger, _: ledger.queue.take("w", lambda _: True, 5.0, TTL, 10),
    "renew": lambda ledger, claim: ledger.queue.renew([claim, claim], 5.0, TTL),
    "release": lambda ledger, claim: ledger.queue.release([claim], 5.0),
    "wait": lambda ledger, claim: ledger.queue.wait(claim, 9.0, "overloaded", 5.0, an_end()),
    "settle": lambda ledger, claim: ledger.queue.settle(claim, a_result("running"), 5.0, an_end()),
    "cancel": lambda ledger, _: ledger.queue.cancel("waiting", 5.0),
    "submit_many": lambda ledger, _: ledger.queue.submit_many(
        [a_request("new", session_id="s", labels={"a": "b"})], 5.0
    ),
    "admit": lambda ledger, _: ledger.queue.admit(a_request("waiting"), "copy", 5.0),
    "lock_session": lambda ledger, claim: ledger.sessions.lock(
        claim, "s", agent="claude-code", host="local", workspace="/srv/shop", now=5.0
    ),
    "route": lambda ledger, claim: ledger.queue.route(claim, "codex", 1, b"{}"),
    "append_many": lambda ledger, claim: ledger.events.append_many([Batch(claim, 1, [b"{}"])]),
    "events": lambda ledger, _: ledger.events.after("done", 1),
    "last_seq": lambda ledger, _: ledger.events.last_seq("done"),
    "waiters": lambda ledger, _: tasks_of(ledger, "done"),
    "told": lambda ledger, _: ledger.waiters.told(Waiter("done", "done")),
    "admit_again": lambda ledger, _: ledger.queue.admit(a_request("waiting"), "waiting", 5.0, message="{}"),
    "unanswered": lambda ledger, _: ledger.waiters.unanswered(99.0),
    "waiting": lambda ledger, _: ledger.waiters.of("done"),
    "lease": lambda ledger, _: ledger.waiters.lease(Waiter("done", "done"), 5.0),
    "renew_leases": lambda ledger, _: ledger.waiters.renew([Waiter("done", "done")], 5.0),
    "put_off": lambda ledger, _: ledger.waiters.put_off(Waiter("done", "done"), 5.0, ["it"]),
    "turn_of": lambda ledger, _: ledger.waiters.turn_of("copy"),
    "open_attempts": lambda ledger, _: ledger.hosts.open_attempts(),
    "queue_depths": lambda ledger, _: ledger.reports.queue_depths(),
    "attempts_by_spool": lambda ledger, _: ledger.accounting.by_spool(["a", "b"]),
    "usage_of": lambda ledger, _: ledger.accounting.usage_of("done"),
    "amend_usage": lambda ledger, _: ledger.accounting.amend("done", 1, a_usage()),
    "turn": lambda ledger, _: ledger.reports.turn("done"),
    "starting_with": lambda ledger, _: ledger.reports.starting_with("done", 6),
    "history_waiting": lambda ledger, _: ledger.reports.history(status="waiting"),
}


@contextmanager
def plans(ledger: Ledger) -> Iterator[list[str]]:
    """How SQLite finds the rows of each statement, a line for each table."""
    engine, found = ledger._database.engine, []

    def explain(
        connection: sa.Connection, _: Any, statement: str, parameters: Any, __: object, many: bool
    ) -> None:
        if statement.startswith(("SELECT", "UPDATE", "DELETE")):
            cursor = connection.connection.cursor()
            cursor.execute(f"EXPLAIN QUERY PLAN {statement}", parameters[0] if many else parameters)
            found.extend(str(row[3]) for row in cursor.fetchall())

    sa.event.listen(engine, "before_cursor_execute", explain)
    yield found
    sa.event.remove(engine, "before_cursor_execute", explain)


@pytest.mark.parametrize("operation", ASKED_BY_WORKERS.values(), ids=ASKED_BY_WORKERS)
def test_workers_questions_read_what_they_are_about(sqlite_url: str, operation: Operation) -> None:
    with Ledger.open(sqlite_url) as ledger:
        completed(ledger, "done", a_usage(source=UsageSource.STREAM), labels={"a": "b"})
        ledger.queue.admit(a_request("done"), "done", 1.0)
        claim = claimed(ledger, "running", labels={"a": "b"})
        begun(ledger, claim, "s2")
        ledger.queue.submit_many([a_request("waiting")], 2.0)
        with plans(ledger) as found:
            operation(ledger, claim)
    read_whole = [line for line in found if line.startswith("SCAN") and line.split()[1] in GROWING]
    assert found
    assert [line for line in read_whole if HARMLESS not in line] == []
    assert not [line for line in found if "(state=?" in line and operation in _ABOUT_ENDED]


_ABOUT_ENDED = [ASKED_BY_WORKERS["unanswered"], ASKED_BY_WORKERS["turn_of"]]  # a state that all turns come to


@pytest.mark.parametrize("wanted", [{"status": "cancelled"}, {"agent": "nobody"}, {"host": "nowhere"}])
def test_history_reads_only_turns_that_it_shows(sqlite_url: str, wanted: dict[str, str]) -> None:
    with Ledger.open(sqlite_url) as ledger, plans(ledger) as found:
        ledger.reports.history(**wanted)  # type: ignore[arg-type]
    assert "SCAN turns USING INDEX turns_by_age" in found  # it has these columns, and the order
    columns = sa.inspect(sa.create_engine(sqlite_url)).get_indexes("turns")
    (by_age,) = [index["column_names"] for index in columns if index["name"] == "turns_by_age"]
    assert set(wanted) <= set(by_age)


def test_large_columns_are_the_last_ones(sqlite_url: str) -> None:
    """SQLite finds a column behind them only by reading through them."""
    with Ledger.open(sqlite_url):
        columns = [column["name"] for column in sa.inspect(sa.create_engine(sqlite_url)).get_columns("turns")]
    assert columns[-2:] == ["request", "result"]


def test_next_producer_is_found_whatever_the_priorities(ledger: Ledger) -> None:
    for number, producer in enumerate(["a", "b", "c"]):
        for priority in (0, 9):
            turn = a_request(f"{producer}{priority}", producer=producer, priority=priority, host=f"h{number}")
            ledger.queue.submit_many([turn], 1.0 + number)
    assert taken(ledger, 9.0) == ["a9", "b9", "c9", "a0", "b0", "c0"]


def test_claim_of_another_owner_or_epoch_is_neither_renewed_nor_released(ledger: Ledger) -> None:
    stale = claimed(ledger, "t1", "w1", 1.0)
    fresh = claimed(ledger, "t1", "w2", 1.0 + TTL)
    other = claimed(ledger, "t2", "w1", 1.0)
    assert ledger.queue.renew([stale, other], 5.0, 1000.0).held == {"t2"}
    ledger.queue.release([stale, other], 6.0)
    assert ledger.reports.turn("t1").owner == "w2"
    assert ledger.reports.turn("t2").owner is None
    assert ledger.queue.renew([fresh], 7.0, TTL).held == {"t1"}


@pytest.mark.parametrize("by", CostKey)
def test_bill_of_all_time_is_the_bill_since_the_beginning(ledger: Ledger, by: CostKey) -> None:
    for number in range(3):
        used = a_usage(model=f"model{number}")
        completed(ledger, f"t{number}", used, labels={"team": f"team{number % 2}", "all": "yes"})
    assert ledger.reports.cost(by) == ledger.reports.cost(by, since=0.0) != []
