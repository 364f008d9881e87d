"""Workers have the ledger forget, about once an hour, and nothing keeps them from it for good."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from adapters.errors import TurnCancelled
from ops.errors import LedgerUnavailable, UnknownTurn
from ops.ledger import Forgotten
from ops.ledger.ledger import Retention
from ops.settings import Settings
from tests.support.fleets.fleet import Fleet
from tests.support.fleets.site import Site
from workers.context import WorkerContext
from workers.maintenance.retention import forget_old, keep_forgetting
from workers.results import refused

DAY_S = 86_400.0
HOUR_S = 3_600.0


class Enough(BaseException):
    """The time of the test is over."""


class Clock:
    """Time that passes while somebody sleeps."""

    def __init__(self, now: float, ends: float) -> None:
        self.now = now
        self.slept: list[float] = []
        self._ends = ends

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        if self.now > self._ends:
            raise Enough


def settled(site: Site, turn_id: str, now: float) -> None:
    site.queue(turn_id=turn_id)
    site.ledger.queue.settle_unclaimed(turn_id, refused(turn_id, TurnCancelled("by the test")), now)


def equipped(site: Site, clock: Clock) -> WorkerContext:
    return replace(site.worker(), clock=clock, rng=Random(7))


def keep(worker: WorkerContext, clock: Clock) -> None:
    with pytest.raises(Enough):
        asyncio.run(keep_forgetting(worker, clock.sleep))


def test_what_is_older_than_the_settings_say_is_forgotten(tmp_path: Path) -> None:
    site = Site(tmp_path)
    now = 1_000 * DAY_S
    for age_days in (401, 399, 31, 29):
        settled(site, f"t{age_days}", now - age_days * DAY_S)
    asyncio.run(forget_old(equipped(site, Clock(now, now + DAY_S)), Clock(now, now + DAY_S).sleep))
    with pytest.raises(UnknownTurn):
        site.ledger.reports.turn("t401")
    detailed = [turn for turn in ("t399", "t31", "t29") if site.ledger.reports.request(turn) is not None]
    assert detailed == ["t29"]
    assert site.ledger.reports.turn("t399").status == "cancelled"


def test_defaults_are_30_and_400_days() -> None:
    settings = Settings()
    assert settings.events_retention_ms == 30 * DAY_S * 1000
    assert settings.turns_retention_ms == 400 * DAY_S * 1000


def test_it_happens_about_once_an_hour_and_not_at_once(tmp_path: Path) -> None:
    site = Site(tmp_path)
    start = 1_000 * DAY_S
    clock = Clock(start, start + 50 * HOUR_S)
    settled(site, "soon", start - 30 * DAY_S + 10 * HOUR_S)  # old enough ten hours from now
    keep(equipped(site, clock), clock)
    assert site.ledger.reports.request("soon") is None
    long = [slept for slept in clock.slept if slept > 1]
    assert 0.5 * HOUR_S <= min(long) < max(long) <= 1.5 * HOUR_S
    assert 35 <= len(long) <= 70
    assert clock.slept[0] == long[0]


def test_every_batch_lets_others_write(tmp_path: Path) -> None:
    site = Site(tmp_path)
    for number in range(250):
        settled(site, f"t{number}", float(number))
    now = 1_000 * DAY_S
    clock = Clock(now, now + DAY_S)
    asyncio.run(forget_old(equipped(site, clock), clock.sleep))
    assert len(clock.slept) == 3
    assert site.ledger.reports.history() == []


@pytest.mark.parametrize("fault", [LedgerUnavailable("ledger: away"), ValueError("a fault of ours")])
def test_it_goes_on_after_any_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Exception) -> None:
    site = Site(tmp_path)
    start = 1_000 * DAY_S
    settled(site, "old", 0.0)
    clock = Clock(start, start + 10 * HOUR_S)
    faults = [fault] * 3
    forget: Callable[[float, float], Forgotten] = site.ledger.retention.forget

    def faulty(self: Retention, details_before: float, turns_before: float, *, archiving: bool) -> Forgotten:
        assert not archiving
        if faults:
            raise faults.pop()
        return forget(details_before, turns_before)

    monkeypatch.setattr(Retention, "forget", faulty)
    keep(equipped(site, clock), clock)
    assert not faults
    with pytest.raises(UnknownTurn):
        site.ledger.reports.turn("old")


def test_forgotten_turn_is_shown_in_history_and_cost_and_still_answered(fleet: Fleet, recording: Path) -> None:
    fleet.start_worker()
    request = fleet.recorded(recording, turn_id="forgotten", labels={"team": "web"})
    result = fleet.run(request)
    assert fleet.ledger.retention.forget(1e12, 0.0) == Forgotten(details=1)
    for command in (("history",), ("cost", "--by", "label"), ("result", "forgotten"), ("watch", "forgotten")):
        said = fleet.command(*command)
        assert (said.returncode, said.stderr) == (0, ""), command
    assert "forgotten" in fleet.command("history").stdout
    assert "team=web" in fleet.command("cost", "--by", "label").stdout
    assert fleet.run(request) == result  # sent again, it does not run again
    assert fleet.ledger.reports.turn("forgotten").attempts == 1
