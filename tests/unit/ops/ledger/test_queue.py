"""Which turns a worker takes: those of dead workers, then everybody's fair share, where there is room."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from ops.ledger import Asked, Ledger, Seen, State
from ops.ledger.queue.known_hosts import REMEMBERED_S
from ops.ledger.queue.requirements import NOWHERE
from tests.support.claiming import claim_turn
from tests.support.ledger.accounts import TTL, a_request, a_result, an_end, begun, claimed, taken
from tests.support.ledger.postgresql_server import PostgresqlServer
from tests.support.ledger.processes import Crew


def queue(ledger: Ledger, *turn_ids: str, now: float = 1.0, **fields: object) -> None:
    for number, turn_id in enumerate(turn_ids):
        ledger.queue.submit_many([a_request(turn_id, **fields)], now + number / 100)


def test_older_turns_come_first(ledger: Ledger) -> None:
    queue(ledger, "b", "a", "c")
    assert taken(ledger, 5.0, limit=2) == ["b", "a"]
    assert taken(ledger, 5.0) == ["c"]
    assert taken(ledger, 5.0) == []


def test_higher_priority_comes_first_among_turns_of_one_producer(ledger: Ledger) -> None:
    queue(ledger, "old")
    queue(ledger, "urgent", now=2.0, priority=9)
    queue(ledger, "soon", now=3.0, priority=5)
    queue(ledger, "last", now=1.0, priority=-9)
    assert taken(ledger, 5.0) == ["urgent", "soon", "old", "last"]


def test_producers_take_turns_however_many_each_has_queued(ledger: Ledger) -> None:
    queue(ledger, *(f"bulk{n}" for n in range(20)), producer="bulk", priority=9)
    queue(ledger, "one", now=2.0, producer="single")
    queue(ledger, "x", "y", now=3.0, producer="pair")
    assert taken(ledger, 5.0, limit=5) == ["bulk0", "one", "x", "bulk1", "y"]


def test_running_turns_count_for_a_producers_share(ledger: Ledger) -> None:
    for number in range(3):
        claimed(ledger, f"running{number}", now=4.0, producer="busy")
    queue(ledger, "b1", "b2", producer="busy")
    queue(ledger, "i1", "i2", "i3", "i4", now=2.0, producer="idle")
    assert taken(ledger, 5.0, limit=5) == ["i1", "i2", "i3", "b1", "i4"]


def test_turn_is_taken_only_where_there_is_room(ledger: Ledger) -> None:
    queue(ledger, "near", host="near")
    queue(ledger, "gpu", now=2.0, host_labels={"gpu": "yes", "arch": "arm"})
    queue(ledger, "anywhere", now=3.0)
    queue(ledger, "far", now=4.0, host="far")
    assert taken(ledger, 5.0, {"host:far"}) == ["far"]
    assert taken(ledger, 5.0, {"any"}) == ["anywhere"]
    assert taken(ledger, 5.0, {'labels:{"arch": "arm", "gpu": "yes"}'}) == ["gpu"]
    assert taken(ledger, 5.0, set()) == []


def test_full_place_is_asked_for_once_and_hides_no_other(ledger: Ledger) -> None:
    queue(ledger, *(f"full{n}" for n in range(5)), host="full")
    queue(ledger, "free", now=2.0, host="free")
    asked = []

    def admits(place: str) -> bool:
        asked.append(place)
        return place == "host:free"

    assert [claim.turn_id for claim in ledger.queue.take("w", admits, 5.0, TTL, 10)] == ["free"]
    assert sorted(asked) == ["host:free", "host:full"]


def test_turn_of_a_known_session_waits_for_its_host(ledger: Ledger) -> None:
    first = claimed(ledger, "first")
    place = {"agent": "claude-code", "host": "home", "workspace": "/srv/shop"}
    ledger.sessions.lock(first, "session-1", now=2.0, **place)
    ledger.queue.settle(first, a_result("first"), 3.0)
    queue(ledger, "second", now=4.0, session_id="session-1")
    assert taken(ledger, 5.0, {"any"}) == []
    assert taken(ledger, 5.0, {"host:home"}) == ["second"]


def test_open_attempt_needs_a_way_to_its_host_and_no_slot(ledger: Ledger) -> None:
    claim = claimed(ledger, now=1.0)
    begun(ledger, claim, host="near")
    ledger.queue.wait(claim, 4.0, "host_unreachable", 2.0)
    assert taken(ledger, 5.0, {"any", "host:near"}) == []
    (again,) = ledger.queue.take("w2", lambda place: place == "at:near", 5.0, TTL, 10)
    ledger.queue.wait(again, 6.0, "overloaded", 5.0, an_end())
    assert taken(ledger, 7.0, {"any"}) == ["t1"]


def test_turns_of_dead_workers_come_before_all_others(ledger: Ledger) -> None:
    claimed(ledger, "orphan", now=10.0, producer="busy")
    queue(ledger, "old", producer="idle")
    assert taken(ledger, 10.0 + TTL, limit=1) == ["orphan"]
    assert taken(ledger, 10.0 + TTL, limit=1) == ["old"]


def test_turn_with_an_eta_is_taken_when_it_is_due(ledger: Ledger) -> None:
    assert ledger.queue.admit(a_request(), "task", 1.0, due_at=60.0) == Asked(None, again=False)
    assert taken(ledger, 59.0) == []
    assert taken(ledger, 60.0) == ["t1"]


def test_turn_that_was_revoked_before_it_came_is_cancelled_before_anybody_can_take_it(ledger: Ledger) -> None:
    ledger.queue.admit(a_request(), "task", 1.0, due_at=60.0, revoked=True)
    (claim,) = ledger.queue.take("w1", lambda place: place == NOWHERE, 1.0, TTL, 10)
    assert (claim.turn_id, claim.cancel_requested) == ("t1", True)


def _take_all(number: int, url: str) -> list[str]:
    with Ledger.open(url) as ledger:
        found: list[str] = []
        while some := ledger.queue.take(f"w{number}", lambda _: True, 5.0, 1000.0, 3):
            found += [claim.turn_id for claim in some]
    return found


def test_eight_processes_take_every_turn_once(ledger: Ledger, ledger_url: str, crew: Crew) -> None:
    for producer in ("a", "b", "c"):
        queue(ledger, *(f"{producer}{number}" for number in range(20)), producer=producer)
    taken_by = crew.together(_take_all, ledger_url)
    everything = [turn_id for found in taken_by for turn_id in found]
    assert len(everything) == len(set(everything))
    # What one transaction had locked, another one passed over; a poll later, it is taken.
    assert sorted(everything + taken(ledger, 5.0)) == sorted(f"{p}{n}" for p in "abc" for n in range(20))


def test_turn_that_somebody_holds_locked_is_passed_over(postgresql: PostgresqlServer) -> None:
    with Ledger.open(postgresql.new_database()) as ledger:
        queue(ledger, "locked", "free")
        with ledger._database.read() as other:
            other.execute(sa.text("SELECT 1 FROM turns WHERE turn_id = 'locked' FOR UPDATE"))
            assert taken(ledger, 5.0) == ["free"]
        assert taken(ledger, 5.0) == ["locked"]


def test_turn_that_only_a_newer_runturn_can_read_holds_up_no_other(ledger: Ledger) -> None:
    queue(ledger, "newer", "fine")
    claimed(ledger, "newer-orphan", now=1.0)
    with ledger._database.write() as connection:
        connection.execute(sa.text("UPDATE turns SET request = '{\"version\": 2}' WHERE turn_id LIKE 'newer%'"))
    assert taken(ledger, 1.0 + TTL) == ["fine"]
    with pytest.raises(ValueError, match="version"):
        claim_turn(ledger, "newer", "w", 100.0, TTL)
    assert ledger.reports.turn("newer").state is State.QUEUED


def test_look_at_the_queue_reads_an_index_and_sorts_nothing(sqlite_url: str) -> None:
    with Ledger.open(sqlite_url) as ledger, ledger._database.read() as connection:
        for statement in (
            "SELECT producer, place FROM turns WHERE due_at IS NOT NULL ORDER BY producer, place LIMIT 1",
            "SELECT turn_id FROM turns WHERE producer = 'a' AND place = 'b' "
            "AND due_at <= 1 ORDER BY rank, created_at, turn_id LIMIT 1",
        ):
            plan = " ".join(str(row) for row in connection.execute(sa.text(f"EXPLAIN QUERY PLAN {statement}")))
            assert "turns_ready" in plan
            assert "TEMP B-TREE" not in plan


@pytest.mark.parametrize("running", [True, False])
def test_running_turn_is_cancelled_only_if_so_asked(ledger: Ledger, running: bool) -> None:
    claim = claimed(ledger)
    ledger.queue.cancel("t1", 2.0, running=running)
    assert ledger.queue.renew([claim], 3.0, TTL).cancelled == ({"t1"} if running else set())


def test_workers_know_of_each_others_hosts(ledger: Ledger) -> None:
    ledger.hosts.announce({"near": {}, "far": {"gpu": "yes"}}, 1.0)
    ledger.hosts.announce({"far": {"gpu": "no"}, "near": {}}, 2.0)
    assert ledger.hosts.known() == {
        "near": [Seen({}, 1.0)],  # said just now
        "far": [Seen({"gpu": "no"}, 2.0), Seen({"gpu": "yes"}, 1.0)],
    }
    ledger.hosts.announce({"near": {}}, 100.0)
    assert ledger.hosts.known()["near"] == [Seen({}, 100.0)]


def test_host_that_nobody_has_known_for_a_day_is_forgotten(ledger: Ledger) -> None:
    ledger.hosts.announce({"old": {}}, 0.0)
    ledger.hosts.announce({"new": {}}, REMEMBERED_S)
    assert ledger.hosts.known() == {"new": [Seen({}, REMEMBERED_S)]}
