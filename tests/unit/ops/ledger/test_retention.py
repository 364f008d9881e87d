"""What is old is forgotten, in small steps; what is not settled is not touched, and totals stay."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from ops.errors import UnknownTurn
from ops.ledger import CostKey, Forgotten, Ledger, State, retention
from ops.ledger.schema import events, metadata, sessions, turns, waiters
from tests.support.ledger.accounts import PLACE, a_result, a_usage, an_end, begun, claimed, completed
from tests.support.ledger.processes import Crew

NEVER = float("-inf")
DAY_S = 86_400.0


def rows(url: str) -> dict[str, int]:
    """How many rows each table has."""
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.connect() as connection:
        return {
            table.name: int(connection.scalar(sa.select(sa.func.count()).select_from(table)) or 0)
            for table in metadata.sorted_tables
        }


def ended(ledger: Ledger, turn_id: str, now: float, **fields: Any) -> None:
    """A turn with everything that a turn may have; it is settled 5 s after `now`."""
    claim = claimed(ledger, turn_id, now=now, labels={"team": "web"}, **fields)
    session = f"session-{turn_id}"
    ledger.sessions.lock(claim, session, **PLACE, now=now)
    begun(ledger, claim, f"spool-{turn_id}", now, session_id=session)
    ledger.events.append(claim, 1, [b'{"seq":1}'])
    ledger.events.append(claim, 2, [b'{"seq":2}', b'{"seq":3}'])
    with ledger._database.write() as connection:  # a task that nobody has told the result
        connection.execute(waiters.insert().values(turn_id=turn_id, task_id=f"another-{turn_id}", follows=""))
    ledger.queue.settle(claim, a_result(turn_id, session_id=session), now + 5, an_end())


def everything(ledger: Ledger, details_before: float, turns_before: float, limit: int = 100) -> Forgotten:
    total = Forgotten()
    while forgotten := ledger.retention.forget(details_before, turns_before, limit):
        total += forgotten
    return total


def test_details_go_and_the_turn_stays(ledger: Ledger) -> None:
    ended(ledger, "old", 0.0)
    ended(ledger, "new", DAY_S)
    before = (
        ledger.reports.turn("old"),
        ledger.reports.result("old"),
        ledger.reports.history(),
        ledger.reports.cost(CostKey.LABEL),
    )
    assert everything(ledger, DAY_S, NEVER) == Forgotten(details=1)
    assert (ledger.events.after("old"), ledger.reports.request("old")) == ([], None)
    assert (
        ledger.reports.turn("old"),
        ledger.reports.result("old"),
        ledger.reports.history(),
        ledger.reports.cost(CostKey.LABEL),
    ) == before
    assert len(ledger.events.after("new")) == 3
    assert ledger.reports.request("new") is not None


def test_turns_go_with_all_that_is_theirs_and_totals_stay(ledger: Ledger, ledger_url: str) -> None:
    ended(ledger, "old", 0.0)
    ended(ledger, "new", DAY_S)
    totals, with_both = ledger.reports.totals(), rows(ledger_url)
    assert everything(ledger, NEVER, DAY_S) == Forgotten(turns=1, sessions=1)
    kept = {"model_totals", "outcome_totals", "failure_totals", "clocks", "alembic_version"}
    left = {name: count / 2 for name, count in with_both.items() if name not in kept}
    assert {name: count for name, count in rows(ledger_url).items() if name not in kept} == left
    assert ledger.reports.totals() == totals
    with pytest.raises(UnknownTurn):
        ledger.reports.turn("old")
    assert [row.turns for row in ledger.reports.cost(CostKey.MODEL)] == [1]


def _references(table: sa.Table) -> list[str]:
    return [str(key.column.table.name) for key in table.foreign_keys]


def test_tables_of_turns_are_all_emptied(ledger: Ledger, ledger_url: str) -> None:
    """Whoever adds a table that refers to turns, has to have it forgotten with them."""
    ended(ledger, "old", 0.0)
    everything(ledger, NEVER, DAY_S)
    refer = {table.name for table in metadata.sorted_tables if {*_references(table)} & {"turns", "attempts"}}
    # Only a turn that is not settled is in a session; waiters may wait for a session of turns, too.
    of_turns = refer - {"sessions"} | {"turns", "waiters"}
    assert {name for name, count in rows(ledger_url).items() if count and name in of_turns} == set()
    of_retention = {table.name for table in (*retention._OF_TURNS, turns)}
    assert of_turns == of_retention


def test_refused_turns_go_too(ledger: Ledger) -> None:
    ended(ledger, "bad", 0.0)
    with ledger._database.write() as connection:
        connection.execute(turns.update().values(request=None))  # as of one that is not valid
    assert everything(ledger, DAY_S, NEVER) == Forgotten()
    assert everything(ledger, DAY_S, DAY_S) == Forgotten(turns=1, sessions=1)


def test_nothing_that_is_not_settled_is_touched(ledger: Ledger, ledger_url: str) -> None:
    running = claimed(ledger, "running", now=0.0)
    begun(ledger, running, "spool", 0.0)
    ledger.events.append(running, 1, [b'{"seq":1}'])
    ledger.sessions.lock(running, "locked", **PLACE, now=0.0)
    ledger.queue.wait(claimed(ledger, "parked", now=0.0), 1e12, "rate_limited", 0.0)
    ended(ledger, "asked-for", 0.0)
    claimed(ledger, "queued", now=0.0, session_id="session-asked-for")
    before = rows(ledger_url)
    forever = 1e12
    assert everything(ledger, forever, forever) == Forgotten(details=1, turns=1)
    after = rows(ledger_url)
    assert (after["turns"], after["events"], after["attempts"]) == (before["turns"] - 1, 1, 1)
    assert after["sessions"] == before["sessions"] == 2
    assert ledger.reports.turn("running").state is State.RUNNING
    ledger.queue.settle(running, a_result("running"), 1.0, an_end())


def test_session_that_is_used_stays(ledger: Ledger) -> None:
    ended(ledger, "first", 0.0)
    second = claimed(ledger, "second", now=2 * DAY_S)
    ledger.sessions.lock(second, "session-first", **PLACE, now=2 * DAY_S)
    ledger.queue.settle(second, a_result("second"), 2 * DAY_S)
    assert everything(ledger, DAY_S, DAY_S) == Forgotten(details=1, turns=1)
    assert ledger.sessions.find("session-first") is not None
    assert everything(ledger, 3 * DAY_S, 3 * DAY_S) == Forgotten(details=1, turns=1, sessions=1)
    assert ledger.sessions.find("session-first") is None


def test_steps_are_small(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(7):
        ended(ledger, f"t{number}", float(number))
    assert ledger.retention.forget(DAY_S, NEVER, limit=3) == Forgotten(details=3)
    assert [ledger.reports.request(f"t{number}") is None for number in range(7)] == [True] * 3 + [
        False
    ] * 4  # oldest first
    monkeypatch.setattr(retention, "ROWS", 3)  # each turn has two
    assert ledger.retention.forget(DAY_S, NEVER, limit=100) == Forgotten(details=2)
    assert everything(ledger, DAY_S, NEVER) == Forgotten(details=2)
    assert everything(ledger, NEVER, DAY_S, limit=2) == Forgotten(turns=7, sessions=7)


def test_forgotten_id_may_be_used_anew(ledger: Ledger) -> None:
    ended(ledger, "t1", 0.0)
    everything(ledger, DAY_S, DAY_S)
    ended(ledger, "t1", 2 * DAY_S)
    assert len(ledger.events.after("t1")) == 3


def test_late_usage_of_forgotten_turns_changes_nothing(ledger: Ledger) -> None:
    ended(ledger, "t1", 0.0)
    everything(ledger, DAY_S, DAY_S)
    totals = ledger.reports.totals()
    assert not ledger.accounting.amend("t1", 1, a_usage(9.0))
    assert ledger.reports.totals() == totals
    assert ledger.accounting.by_spool(["spool-t1"]) == {}


def _forget(_: int, url: str) -> Forgotten:
    with Ledger.open(url) as ledger:
        return everything(ledger, DAY_S, DAY_S, limit=7)


def test_eight_workers_forget_at_once(ledger: Ledger, ledger_url: str, crew: Crew) -> None:
    for number in range(60):
        completed(ledger, f"t{number}", a_usage(), now=float(number), labels={"team": "web"})
    totals = ledger.reports.totals()
    forgotten = crew.together(_forget, ledger_url)
    assert sum((each for each in forgotten), Forgotten()).turns == 60
    assert rows(ledger_url)["turns"] == 0
    assert ledger.reports.totals() == totals


def test_old_rows_are_found_by_index(ledger: Ledger, sqlite_url: str) -> None:
    Ledger.open(sqlite_url).close()
    engine = sa.create_engine(sqlite_url)
    with engine.connect() as connection:
        for query in (
            sa.select(turns.c.turn_id).where(turns.c.settled_at < 1, turns.c.request.is_not(None)),
            sa.select(turns.c.turn_id).where(turns.c.settled_at < 1),
            sa.select(sessions.c.session_id).where(sessions.c.updated_at < 1),
            sa.select(events.c.last_seq).where(events.c.turn_id == "t1"),
        ):
            text = str(query.compile(connection, compile_kwargs={"literal_binds": True}))
            plan = " ".join(row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}"))
            assert "USING" in plan, plan
            assert "SCAN" not in plan, plan
