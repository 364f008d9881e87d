"""Slots of a host: never more than there are."""

from __future__ import annotations

import os
import signal

import pytest
import sqlalchemy as sa

from ops.errors import AttemptOpen
from ops.ledger import Attempt, Claim, HostBusy, Ledger
from ops.ledger.queue import claims
from tests.support.fleets.forked import CONTEXT
from tests.support.ledger.accounts import TTL, a_result, an_end, audit, begun, claimed
from tests.support.ledger.postgresql_server import PostgresqlServer
from tests.support.ledger.processes import Crew

PLACED = {"session_id": None, "resume": False, "now": 1.0}


def test_full_host_takes_no_attempt_and_nothing_is_written(ledger: Ledger) -> None:
    for turn_id in ("t1", "t2"):
        begun(ledger, claimed(ledger, turn_id), turn_id, slots=2)
    third = claimed(ledger, "t3")
    before = ledger.reports.turn("t3")
    assert ledger.queue.begin_attempt(third, host="local", spool_id="t3", slots=2, **PLACED) == HostBusy(
        "local", 2
    )
    assert ledger.reports.turn("t3") == before
    assert ledger.queue.renew([third], 2.0, TTL).held == {"t3"}
    assert begun(ledger, third, "t3", host="far", slots=2).attempt == 1
    assert ledger.hosts.open_attempts() == {"local": 2, "far": 1}


def test_slot_is_free_when_an_attempt_was_booked(ledger: Ledger) -> None:
    first, second = claimed(ledger, "t1"), claimed(ledger, "t2")
    begun(ledger, first, "t1", slots=1)
    ledger.queue.wait(first, 9.0, "overloaded", 2.0, an_end())
    assert ledger.hosts.open_attempts() == {}
    assert begun(ledger, second, "t2", slots=1).attempt == 1


def test_host_without_a_limit_takes_any_number(ledger: Ledger) -> None:
    for number in range(5):
        begun(ledger, claimed(ledger, f"t{number}"), f"s{number}")
    late = claimed(ledger, "late")
    # the limit was lowered below what is open
    assert ledger.queue.begin_attempt(late, host="local", spool_id="s", slots=3, **PLACED) == HostBusy("local", 5)


def test_attempt_that_has_its_slot_may_be_begun_again(ledger: Ledger) -> None:
    claim = claimed(ledger)
    attempt = begun(ledger, claim, "s1", slots=1)
    assert begun(ledger, claim, "s1", slots=1) == attempt  # its answer was lost
    with pytest.raises(AttemptOpen):
        begun(ledger, claim, "s2", slots=1)


def test_slot_stays_taken_while_its_worker_is_dead(ledger: Ledger) -> None:
    begun(ledger, claimed(ledger, "t1", now=1.0), "t1", slots=1)
    other = claimed(ledger, "t2", now=500.0)
    assert ledger.queue.begin_attempt(other, host="local", spool_id="t2", slots=1, **PLACED) == HostBusy(
        "local", 1
    )
    successor = claimed(ledger, "t1", "w2", now=501.0)
    assert successor.open is not None
    ledger.queue.settle(successor, a_result("t1"), 502.0, an_end())
    assert begun(ledger, other, "t2", slots=1).attempt == 1


def test_open_attempts_have_an_index_of_their_own(ledger: Ledger) -> None:
    engine = ledger._database.engine
    indexes = sa.inspect(engine).get_indexes("attempts")
    (options,) = (index["dialect_options"] for index in indexes if index["name"] == "attempts_open")
    assert "ended_at IS NULL" in str(options[f"{engine.dialect.name}_where"])


def _begin_everywhere(number: int, url: str) -> list[bool]:
    with Ledger.open(url) as ledger:
        answers = []
        for host in range(10):
            claim = claimed(ledger, f"{number}-{host}")
            spool = {"host": f"h{host}", "spool_id": f"{number}-{host}"}
            answers.append(ledger.queue.begin_attempt(claim, slots=2, **spool, **PLACED))
    assert all(
        answer == HostBusy(f"h{host}", 2) or isinstance(answer, Attempt) for host, answer in enumerate(answers)
    )
    return [isinstance(answer, Attempt) for answer in answers]


def test_two_slots_raced_by_eight_processes_are_two(ledger: Ledger, ledger_url: str, crew: Crew) -> None:
    ledger.reports.queue_depths()
    answers = crew.together(_begin_everywhere, ledger_url)
    assert [sum(begun) for begun in zip(*answers, strict=True)] == [2] * 10
    assert ledger.hosts.open_attempts() == {f"h{host}": 2 for host in range(10)}


def test_slots_hold_on_a_server_whose_transactions_are_set_to_see_the_past(
    postgresql: PostgresqlServer, crew: Crew
) -> None:
    url = postgresql.new_database()
    postgresql.execute(
        f"ALTER DATABASE {sa.make_url(url).database} SET default_transaction_isolation = 'repeatable read'"
    )
    with Ledger.open(url) as ledger:
        crew.together(_begin_everywhere, url)
        assert ledger.hosts.open_attempts() == {f"h{host}": 2 for host in range(10)}


def _come_and_go(number: int, url: str) -> tuple[int, int]:
    most = settled = 0
    with Ledger.open(url) as ledger:
        for turn in range(12):
            claim = claimed(ledger, f"{number}-{turn}")
            spool = {"host": "local", "spool_id": f"{number}-{turn}"}
            if isinstance(ledger.queue.begin_attempt(claim, slots=2, **spool, **PLACED), Attempt):
                most = max(most, ledger.hosts.open_attempts()["local"])
                ledger.queue.settle(claim, a_result(claim.turn_id), 3.0, an_end())
                settled += 1
    return most, settled


def test_never_more_than_two_are_open_while_turns_come_and_go(ledger: Ledger, ledger_url: str, crew: Crew) -> None:
    ledger.reports.queue_depths()
    most, settled = zip(*crew.together(_come_and_go, ledger_url), strict=True)
    assert max(most) <= 2
    assert ledger.hosts.open_attempts() == {}
    assert audit(ledger_url) == {"opus": sum(settled) * 3520}


def _die_before_the_commit(url: str, claim: Claim) -> None:
    with Ledger.open(url) as ledger, ledger._database.write() as connection:
        claims.begin_attempt(
            connection, claim, host="local", spool_id="s1", slots=1, lease_s=120, stop_grace_s=5.0, **PLACED
        )
        os.kill(os.getpid(), signal.SIGKILL)


def test_worker_killed_while_it_takes_a_slot_leaves_it_free(ledger: Ledger, ledger_url: str) -> None:
    claim, other = claimed(ledger, "t1"), claimed(ledger, "t2")
    victim = CONTEXT.Process(target=_die_before_the_commit, args=(ledger_url, claim))
    victim.start()
    victim.join(120)
    assert victim.exitcode == -signal.SIGKILL
    assert ledger.hosts.open_attempts() == {}
    assert begun(ledger, other, "s2", slots=1).attempt == 1
