"""The ledger's clock, seen from machines whose own clocks are set."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
import sqlalchemy as sa

from ops.ledger import Ledger, LedgerClock, clock
from tests.support.ledger.accounts import TTL, a_request, a_result, claimed, taken

HOUR = 3600.0
STEPS = pytest.mark.parametrize("step", [HOUR, -HOUR])


class Machine:
    """A machine of the test's own: its time since boot, and its clock, which may be set."""

    def __init__(self, since_boot: float = 100.0, ahead: float = 0.0) -> None:
        self.since_boot = since_boot
        self.wall = time.time() + ahead

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.since_boot += seconds
        self.wall += seconds

    def restart(self, behind: float) -> None:
        """Start it anew a minute later, with a clock that is behind until NTP corrects it."""
        self.wall += 60.0 - behind
        self.since_boot = 20.0

    def clock(self, ledger: Ledger) -> LedgerClock:
        """The ledger's clock in a new process."""
        clock = LedgerClock(ledger._database, lambda: self.since_boot, lambda: self.wall)
        clock.start()
        return clock


@pytest.fixture
def machine(sqlite_ledger: Ledger) -> Machine:
    """One that was just started: the ledger's clock is that of this machine."""
    with sqlite_ledger._database.write() as connection:
        connection.exec_driver_sql("DELETE FROM clocks")
    return Machine()


@pytest.fixture
def sqlite_ledger(sqlite_url: str) -> Iterator[Ledger]:
    with Ledger.open(sqlite_url) as ledger:
        yield ledger


# -- one machine


@STEPS
def test_step_is_no_time_that_has_passed(sqlite_ledger: Ledger, machine: Machine, step: float) -> None:
    clock, began = machine.clock(sqlite_ledger), machine.wall
    claimed(sqlite_ledger, "t1", now=clock())
    machine.wait(10)
    machine.wall += step
    assert clock.read() == pytest.approx(began + 10)
    assert clock.off_s == pytest.approx(step)
    assert clock.settled


@STEPS
def test_processes_that_start_before_and_after_a_step_agree(
    sqlite_ledger: Ledger, machine: Machine, step: float
) -> None:
    early = machine.clock(sqlite_ledger)
    claimed(sqlite_ledger, "t1", now=early())
    machine.wall += step
    late = machine.clock(sqlite_ledger)
    assert late() == pytest.approx(early())


@STEPS
def test_living_workers_turn_is_not_taken_and_a_dead_workers_is_in_time(
    sqlite_ledger: Ledger, machine: Machine, step: float
) -> None:
    clock = machine.clock(sqlite_ledger)
    claimed(sqlite_ledger, "t1", now=clock())
    machine.wall += step
    other = machine.clock(sqlite_ledger)
    machine.wait(TTL - 1)
    assert taken(sqlite_ledger, other.read()) == []
    machine.wait(1)
    assert taken(sqlite_ledger, other.read()) == ["t1"]


@STEPS
def test_retry_is_due_when_it_was_to_be(sqlite_ledger: Ledger, machine: Machine, step: float) -> None:
    clock = machine.clock(sqlite_ledger)
    claim = claimed(sqlite_ledger, "t1", now=clock())
    sqlite_ledger.queue.wait(claim, clock() + 30, "port_exit", clock())
    machine.wall += step
    other = machine.clock(sqlite_ledger)
    machine.wait(29)
    assert taken(sqlite_ledger, other.read()) == []
    machine.wait(1)
    assert taken(sqlite_ledger, other.read()) == ["t1"]


@STEPS
@pytest.mark.parametrize("turn", [None, "settled", "due later"])
def test_clock_that_was_set_is_right_once_no_turn_is_under_way(
    sqlite_ledger: Ledger, machine: Machine, step: float, turn: str | None
) -> None:
    running = machine.clock(sqlite_ledger)
    if turn == "settled":
        claim = claimed(sqlite_ledger, "t1", now=running())
        sqlite_ledger.queue.settle(claim, a_result("t1"), running())
        sqlite_ledger.waiters.told(claim.waiters[0])
    if turn == "due later":
        sqlite_ledger.queue.admit(a_request("t1"), "t1", running(), running() + 2 * HOUR)
    machine.wall += step
    running.correct()
    assert machine.clock(sqlite_ledger)() == machine.wall
    assert running.read() == machine.wall
    assert not running.settled
    assert running.off_s == 0


@STEPS
def test_turn_that_waits_for_a_worker_keeps_the_clock(
    sqlite_ledger: Ledger, machine: Machine, step: float
) -> None:
    before = machine.clock(sqlite_ledger)
    sqlite_ledger.queue.submit_many([a_request("t1")], before())
    machine.wall += step
    assert taken(sqlite_ledger, machine.clock(sqlite_ledger)()) == ["t1"]


def test_small_correction_changes_nothing(sqlite_ledger: Ledger, machine: Machine) -> None:
    before = machine.clock(sqlite_ledger)
    machine.wall += 4.0
    assert machine.clock(sqlite_ledger)() == pytest.approx(before())


def test_night_with_the_lid_closed_is_time_that_has_passed(sqlite_ledger: Ledger, machine: Machine) -> None:
    clock, began = machine.clock(sqlite_ledger), machine.wall
    machine.wait(8 * HOUR)
    assert clock() == pytest.approx(began + 8 * HOUR)
    assert clock.off_s == pytest.approx(0, abs=0.001)


def test_restarted_machine_begins_anew(
    sqlite_ledger: Ledger, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    claimed(sqlite_ledger, "t1", now=machine.clock(sqlite_ledger)())
    monkeypatch.setattr("ops.ledger.clock._boot_id", lambda: "the next")
    machine.since_boot, machine.wall = 5.0, machine.wall + HOUR
    assert machine.clock(sqlite_ledger)() == machine.wall


@pytest.fixture
def restarted(sqlite_ledger: Ledger, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """One that died while a turn ran, another waited for its retry, and the task of a third was being answered.

    It started with a clock that was two hours behind.
    """
    now = machine.clock(sqlite_ledger)()
    claimed(sqlite_ledger, "running", now=now)
    sqlite_ledger.queue.wait(claimed(sqlite_ledger, "waiting", now=now), now + 30, "overloaded", now)
    claim = claimed(sqlite_ledger, "settled", now=now)
    sqlite_ledger.queue.settle(claim, a_result("settled"), now)
    monkeypatch.setattr("ops.ledger.clock._boot_id", lambda: "the next")
    machine.restart(behind=2 * HOUR)
    return machine


def test_no_claim_outlives_its_machine(sqlite_ledger: Ledger, restarted: Machine) -> None:
    now = restarted.clock(sqlite_ledger)()
    assert now == restarted.wall
    assert taken(sqlite_ledger, now) == ["running"]
    assert sqlite_ledger.waiters.unanswered(now) == ["settled"]
    (waiter,) = sqlite_ledger.waiters.of("settled")
    assert sqlite_ledger.waiters.lease(waiter, now) is not None


def test_clock_that_was_behind_at_the_start_is_corrected_once_no_turn_is_under_way(
    sqlite_ledger: Ledger, restarted: Machine
) -> None:
    """And what waits for its retry goes on then."""
    clock = restarted.clock(sqlite_ledger)
    (running,) = sqlite_ledger.queue.take("w2", lambda _: True, clock(), TTL, 1)
    restarted.wall += 2 * HOUR
    clock.correct()
    assert clock.read() == restarted.wall - 2 * HOUR
    sqlite_ledger.queue.settle(running, a_result("running"), clock())
    for turn_id in ("running", "settled"):
        sqlite_ledger.waiters.told(*sqlite_ledger.waiters.of(turn_id))
    clock.correct()
    assert clock.read() == restarted.wall
    assert taken(sqlite_ledger, clock()) == ["waiting"]


def test_claim_that_lasts_too_long_to_be_one_does_not_keep_the_clock(
    sqlite_ledger: Ledger, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here, nothing tells one start of the machine from the next."""
    monkeypatch.setattr("ops.ledger.clock._boot_id", lambda: "")
    machine.wait(HOUR)
    claimed(sqlite_ledger, "t1", now=machine.clock(sqlite_ledger)())
    machine.restart(behind=0.0)
    clock = machine.clock(sqlite_ledger)
    assert clock() == machine.wall
    assert taken(sqlite_ledger, clock()) == ["t1"]


def test_living_workers_turn_is_not_taken_by_one_that_has_not_seen_the_clock_set(
    sqlite_ledger: Ledger, machine: Machine
) -> None:
    """The clock was set back, as it is while no turn is under way; then one was claimed by the new time."""
    behind = machine.clock(sqlite_ledger)
    machine.wall -= HOUR
    claimed(sqlite_ledger, "t1", now=machine.clock(sqlite_ledger)())
    assert behind.settled
    assert taken(sqlite_ledger, behind(), trusted=behind.trusted) == []
    assert behind() == machine.wall
    assert not behind.settled
    machine.wait(TTL)
    assert taken(sqlite_ledger, behind(), trusted=behind.trusted) == [], "it may not have been renewed yet"
    machine.wait(15 - TTL)
    assert taken(sqlite_ledger, behind(), trusted=behind.trusted) == ["t1"], "it was not renewed"


# -- many machines


@pytest.fixture
def shared(reused: Callable[[], str]) -> Iterator[Ledger]:
    with Ledger.open(reused()) as ledger:
        yield ledger


@pytest.mark.postgresql
@STEPS
def test_machines_agree_whatever_their_clocks_show(shared: Ledger, step: float) -> None:
    right, wrong = Machine(50.0), Machine(9_000.0, ahead=step)
    one, other = right.clock(shared), wrong.clock(shared)
    assert one() == pytest.approx(other(), abs=1.0)
    assert one() == pytest.approx(time.time(), abs=1.0)
    assert other.off_s == pytest.approx(step, abs=1.0)


@pytest.mark.postgresql
@STEPS
def test_step_of_a_machines_clock_is_not_the_ledgers(shared: Ledger, step: float) -> None:
    machine = Machine()
    clock = machine.clock(shared)
    machine.wall += step
    assert clock.read() == pytest.approx(time.time(), abs=1.0)
    assert clock.settled
    assert clock.off_s == pytest.approx(step, abs=1.0)


@pytest.mark.postgresql
@STEPS
def test_step_of_the_servers_clock_is_followed_and_no_turn_taken_before_all_have_seen_it(
    shared: Ledger, step: float
) -> None:
    machine = Machine(2 * HOUR)
    clock = machine.clock(shared)
    assert clock.settled
    machine.since_boot -= step  # as if the server's clock had been set
    clock.look()
    assert clock() == pytest.approx(time.time(), abs=1.0)
    assert not clock.settled
    machine.since_boot += 15.0
    assert clock.settled


@pytest.mark.postgresql
def test_turn_renewed_by_the_servers_new_time_is_not_taken_by_the_old(
    shared: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its worker sees first that the server's clock was set back."""
    one, other = (Machine().clock(shared) for _ in range(2))
    claim = claimed(shared, "t1", now=one())
    monkeypatch.setattr("ops.ledger.clock._SERVER", sa.text(f"{clock._SERVER.text} - {HOUR}"))
    assert shared.queue.renew([claim], one.read(), TTL).held == {"t1"}
    assert other.settled
    assert taken(shared, other(), trusted=other.trusted) == []
    assert other() == pytest.approx(one(), abs=1.0)
