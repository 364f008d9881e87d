"""The simulation agrees with queueing theory where there is one, and keeps the fleet's own rules."""

from __future__ import annotations

import math
import random
import re
import statistics
from dataclasses import dataclass
from itertools import pairwise

import pytest
from click.testing import CliRunner

from tests.support.places import ROOT
from tests.tools.capacity import (
    Figures,
    Fleet,
    Lengths,
    LogNormal,
    Served,
    Turn,
    Waits,
    burst,
    measure,
    poisson,
    simulate,
    together,
)
from tests.tools.capacity.__main__ import main
from tests.tools.capacity.costs import LIMITS, TURN, costs
from tests.tools.capacity.report import HOSTS, producers, servers, sizes
from tests.tools.capacity.theory import erlang_c, mean_wait_s

DOCUMENT = ROOT / "docs" / "capacity.md"


@dataclass(frozen=True, slots=True)
class Fixed:
    """All the same."""

    mean_s: float

    @property
    def cv(self) -> float:
        return 0.0

    def draw(self, rng: random.Random) -> float:
        return self.mean_s


@dataclass(frozen=True, slots=True)
class Exponential:
    """Memoryless, as textbooks have it."""

    mean_s: float

    @property
    def cv(self) -> float:
        return 1.0

    def draw(self, rng: random.Random) -> float:
        return rng.expovariate(1 / self.mean_s)


def steady(fleet: Fleet, load: float, lengths: Lengths, turns: int = 60_000) -> Figures:
    """A fleet that turns have come to for long."""
    per_s = load * fleet.total / lengths.mean_s
    start = 20 * lengths.mean_s
    end = start + turns / per_s
    return measure(simulate(fleet, poisson(per_s, lengths, end, seed=1)), fleet, start, end)


def most_at_once(served: list[Served], host: int | None = None) -> int:
    """The greatest number of turns that ran at a time, there or anywhere."""
    mine = [each for each in served if host in (None, each.host)]
    changes = sorted([(each.began, 1) for each in mine] + [(each.ended, -1) for each in mine])
    running = [0]
    for _, change in changes:
        running.append(running[-1] + change)
    return max(running)


def test_erlang_c_is_that_of_the_textbooks() -> None:
    assert erlang_c(1, 0.7) == pytest.approx(0.7)
    assert erlang_c(2, 1.0) == pytest.approx(1 / 3)
    assert erlang_c(12, 10.0) == pytest.approx(0.4494, abs=1e-4)
    assert erlang_c(40_000, 36_000.0) < 1e-9
    assert erlang_c(3, 3.0) == 1.0
    assert mean_wait_s(1, 0.7, 1.0) == pytest.approx(0.7 / 0.3)
    assert mean_wait_s(2, 2.0, 1.0) == math.inf


@pytest.mark.parametrize(("slots", "load"), [(1, 0.5), (1, 0.8), (4, 0.8), (20, 0.8)])
def test_memoryless_turns_wait_as_erlang_says(slots: int, load: float) -> None:
    figures = steady(Fleet(hosts=slots, slots=1, overhead_s=0), load, Exponential(10))
    theory = mean_wait_s(slots, load * slots / 10, 10)
    assert figures.waits.mean_s == pytest.approx(theory, rel=0.1)
    assert figures.utilisation == pytest.approx(load, rel=0.02)
    assert figures.per_s == pytest.approx(load * slots / 10, rel=0.02)
    # Whoever waits does so for an exponential time: P(wait > t) = C · exp(-(1 - load) · slots · t / mean)
    p99 = math.log(erlang_c(slots, load * slots) / 0.01) * 10 / (slots * (1 - load))
    assert figures.waits.p99_s == pytest.approx(p99, rel=0.15)


@pytest.mark.parametrize("lengths", [Fixed(10), LogNormal(10, cv=1.5)], ids=["fixed", "log-normal"])
def test_one_slot_waits_as_pollaczek_and_khinchine_say(lengths: Lengths) -> None:
    figures = steady(Fleet(hosts=1, slots=1, overhead_s=0), 0.7, lengths)
    assert figures.waits.mean_s == pytest.approx(mean_wait_s(1, 0.07, 10, lengths.cv), rel=0.1)


@pytest.mark.parametrize("lengths", [Fixed(10), Exponential(10), LogNormal(10, cv=2.0)])
def test_lengths_have_the_mean_and_spread_that_they_name(lengths: Lengths) -> None:
    rng = random.Random(1)
    drawn = [lengths.draw(rng) for _ in range(100_000)]
    assert statistics.fmean(drawn) == pytest.approx(lengths.mean_s, rel=0.02)
    assert statistics.pstdev(drawn) / statistics.fmean(drawn) == pytest.approx(lengths.cv, rel=0.05, abs=0.001)


def test_saturated_fleet_does_what_it_can_while_its_queue_grows() -> None:
    fleet = Fleet(hosts=5, slots=2, overhead_s=0)
    served = list(simulate(fleet, poisson(2.0, Exponential(10), 5_000, seed=1)))  # twice what 10 slots can do
    early, late = (measure(served, fleet, start, start + 1_000) for start in (1_000, 4_000))
    assert [early.utilisation, late.utilisation] == pytest.approx([1.0, 1.0])
    assert late.per_s == pytest.approx(1.0, rel=0.1)
    assert late.waits.mean_s > 2 * early.waits.mean_s
    assert most_at_once(served) == fleet.total == 10


def test_overhead_occupies_slots() -> None:
    fleet = Fleet(hosts=1, slots=1, overhead_s=1.0)
    served = list(simulate(fleet, burst(10, Fixed(4.0), seed=1)))
    assert [each.wait_s for each in served] == [5.0 * number for number in range(10)]


def test_thousand_turns_of_one_producer_do_not_starve_the_one_of_another() -> None:
    fleet = Fleet(hosts=2, slots=2)
    turns = together(
        burst(1_000, Fixed(60.0), seed=1, producer="batch"),
        iter([Turn(100.0, 60.0, "web"), Turn(5_000.0, 60.0, "web")]),
    )
    figures = measure(simulate(fleet, turns), fleet, 0.0, 20_000.0)
    web, batch = figures.by_producer["web"], figures.by_producer["batch"]
    assert web.turns == 2
    assert web.p99_s <= 61.0  # until one turn of the others has ended
    assert batch.mean_s > 5_000


def test_busy_producers_share_evenly() -> None:
    fleet = Fleet(hosts=4, slots=2, overhead_s=0)
    turns = together(*(burst(500, Exponential(60), seed=1, producer=name) for name in ("a", "b")))
    served = [each for each in simulate(fleet, turns) if each.began < 3_000]
    used = {name: sum(each.turn.length_s for each in served if each.turn.producer == name) for name in ("a", "b")}
    assert used["a"] == pytest.approx(used["b"], rel=0.1)


def test_priority_goes_before_age_and_age_decides_the_rest() -> None:
    turns = [Turn(at, 10.0, priority=priority) for at, priority in ((0, 0), (1, 0), (2, 5), (3, 0), (4, 5))]
    served = simulate(Fleet(hosts=1, slots=1), turns)
    assert [each.turn.at for each in served] == [0, 2, 4, 1, 3]


def test_least_loaded_host_is_chosen_and_none_gets_more_than_its_slots() -> None:
    fleet = Fleet(hosts=10, slots=4)
    for count, most in ((10, 1), (11, 2), (40, 4), (100, 4)):
        served = list(simulate(fleet, burst(count, Exponential(60), seed=1)))
        assert max(most_at_once(served, host) for host in range(10)) == most


def test_full_worker_leaves_turns_to_one_that_looks_within_a_second() -> None:
    fleet = Fleet(hosts=8, slots=1, workers=4, room=2)
    served = list(simulate(fleet, burst(8, Fixed(60.0), seed=3)))
    assert 0.0 < max(each.wait_s for each in served) <= fleet.poll_s
    assert most_at_once(served) == 8


def test_room_of_workers_is_a_limit_too() -> None:
    fleet = Fleet(hosts=100, slots=1, workers=2, room=5)
    assert most_at_once(list(simulate(fleet, burst(50, Fixed(60.0), seed=1)))) == fleet.total == 10


def test_same_seed_gives_the_same_run() -> None:
    def run(seed: int) -> list[Served]:
        return list(simulate(Fleet(3, 2, workers=2), poisson(0.1, LogNormal(50), 5_000, seed), seed))

    assert run(1) == run(1) != run(2)
    assert all(before.ended <= after.ended for before, after in pairwise(run(1)))


def test_no_turns_have_no_waits() -> None:
    waits = Waits.of([])
    assert (waits.turns, math.isnan(waits.mean_s), math.isnan(waits.p50_s)) == (0, True, True)
    assert Waits.of([3.0, 1.0, 2.0]) == Waits(3, 2.0, 2.0, 3.0, 3.0)


def test_costs_grow_with_the_fleet_and_name_what_to_split() -> None:
    small, large = costs(0.1, 30), costs(100.0, 30_000)
    assert (small.workers, small.ledgers, small.brokers, small.event_brokers) == (1, 1, 1, 1)
    assert large.workers == 30_000 / LIMITS.worker_turns
    assert large.ledgers > 1
    # nothing grows worse than the number of turns does
    assert large.ledger_busy <= 1_000 * small.ledger_busy
    assert large.ledger_bytes_per_day == pytest.approx(1_000 * small.ledger_bytes_per_day)
    busy = costs(1_000.0, 1_000)
    assert busy.workers == math.ceil(1_000 * TURN.cpu_s / LIMITS.worker_busy)


def _rows(text: str) -> list[str]:
    """The lines of Markdown tables, without padding."""
    lines = (re.sub(r" +", " ", line) for line in text.splitlines() if line.startswith("|"))
    return [line for line in lines if not set(line) <= set("|-: ")]


def test_document_shows_what_the_program_prints() -> None:
    shown = _rows(DOCUMENT.read_text())
    for table in (sizes(1, hosts=(1, 10)), producers(1), servers()):
        assert set(_rows(str(table))) <= set(shown)
    assert len([row for row in shown if row.startswith("| 10,000 ")]) == 4
    assert {f"{count:,}" for count in HOSTS} <= {row.split("|")[1].strip() for row in shown}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--hosts", "3", "--per-hour", "100"], "| 3 | 4 | 100 | 70% |"),
        (["--hosts", "3", "--per-hour", "1000"], "| 3 | 4 | 1,000 | 144 |"),
        (["--hosts", "3"], "--hosts and --per-hour go together"),
    ],
)
def test_own_fleet_can_be_planned(arguments: list[str], said: str) -> None:
    assert said in re.sub(r" +", " ", CliRunner().invoke(main, arguments).output)
