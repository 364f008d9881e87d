"""A worker whose machine's clock is set by an hour, and another one whose clock is right."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from adapters.protocol.result import Status
from ops.ledger import Ledger
from tests.support.fleets.fleet import Fleet, Worker, slow_recording
from tests.support.fleets.stepped import STEPPED, step
from tests.support.pages import scrape, verdict
from tests.support.waiting import until

HOUR = 3600.0
STEPS = pytest.mark.parametrize("hour", [HOUR, -HOUR], ids=["ahead", "back"])


class Place:
    """A fleet with one worker whose clock a test may set."""

    def __init__(self, fleet: Fleet, slow: Path) -> None:
        self.fleet = fleet
        self._slow = slow
        self._clock = fleet.root / "ahead"
        fleet.environment[STEPPED] = str(self._clock)

    def stepping(self) -> Worker:
        """A worker whose clock is set by `step`."""
        right, self.fleet.module, self.fleet.forks = self.fleet.module, "tests.support.fleets.stepped", False
        try:
            return self.fleet.start_worker()
        finally:
            self.fleet.module, self.fleet.forks = right, True

    def step(self, seconds: float) -> None:
        """Set the clock, to so far from the right time."""
        step(seconds, self._clock)

    def begin(self, **fields: object) -> list[str]:
        """Six turns, under way; each takes long enough for its claim to be renewed."""
        requests = [self.fleet.recorded(self._slow, **fields) for _ in range(6)]
        turns = self.fleet.client.enqueue_many(requests)
        until(lambda: all(len(self.fleet.events(turn_id)) > 1 for turn_id in turns), "six turns to be under way")
        return turns

    def epochs(self, turns: list[str]) -> set[int]:
        """How often they were claimed."""
        with self.fleet.ledger._database.read() as connection:
            rows = connection.exec_driver_sql("SELECT turn_id, epoch FROM turns").all()
        return {epoch for turn_id, epoch in rows if turn_id in turns}

    def assert_completed(self, turns: list[str], *, claims: int) -> None:
        """At their first attempt, claimed so often."""
        results = [self.fleet.result(turn_id) for turn_id in turns]
        kinds = [result.error and result.error.kind for result in results]
        assert [(result.status, result.attempts) for result in results] == [(Status.COMPLETED, 1)] * 6, kinds
        assert self.epochs(turns) == {claims}
        self.fleet.assert_nothing_left()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def place(request: pytest.FixtureRequest, tmp_path: Path, recording: Path) -> Iterator[Place]:
    slow = slow_recording(tmp_path / "slow.jsonl", recording, 1300)
    if request.param == "sqlite":
        with Fleet(tmp_path) as fleet:
            yield Place(fleet, slow)
        return
    url = request.getfixturevalue("postgresql").new_database()
    with Fleet(tmp_path, ledger_url=url) as fleet, Ledger.open(url) as ledger:
        fleet.ledger = ledger
        yield Place(fleet, slow)


@STEPS
def test_turns_are_neither_ended_nor_taken_from_a_worker_whose_clock_is_set(place: Place, hour: float) -> None:
    worker = place.stepping()
    turns = place.begin(turn_timeout_ms=600_000)
    place.fleet.start_worker()
    place.step(hour)
    place.assert_completed(turns, claims=1)
    assert worker.process.poll() is None


@STEPS
def test_turns_are_handed_over_by_a_worker_whose_clock_was_set(place: Place, hour: float) -> None:
    worker = place.stepping()
    turns = place.begin(turn_timeout_ms=600_000)
    place.step(hour)
    worker.terminate()
    assert worker.wait() == 0
    place.fleet.start_worker()
    place.assert_completed(turns, claims=2)


def test_turns_are_taken_over_by_a_worker_whose_clock_is_set_meanwhile(place: Place) -> None:
    killed = place.fleet.start_worker()
    turns = place.begin(turn_timeout_ms=600_000)
    killed.kill()
    place.stepping()
    place.step(-HOUR)  # before their claims have expired: until then it may not take them
    place.assert_completed(turns, claims=2)


def test_wrong_clock_is_reported_until_it_is_right_again(place: Place) -> None:
    worker = place.stepping()
    until(lambda: _is_ready(worker), "a worker that is ready")
    turns = place.begin()  # without any, a SQLite ledger takes over the new time
    place.step(HOUR)
    status, reasons = verdict(worker.metrics.replace("metrics", "readyz"))
    assert (status, set(reasons) - {"event_loop"}) == (503, {"clock"})  # a busy machine may make it late, too
    assert "3600 s ahead of the ledger's" in reasons["clock"]
    assert scrape(worker.metrics)["runturn_clock_ahead_seconds", ()] == pytest.approx(HOUR, abs=2)
    until(lambda: b"this machine's clock is wrong" in worker.log.read_bytes(), "the log to say so")
    place.step(0.0)
    until(lambda: b"this machine's clock is right again" in worker.log.read_bytes(), "the log to say so")
    until(lambda: _is_ready(worker), "a worker that is ready")
    place.assert_completed(turns, claims=1)


def test_sqlite_ledger_takes_over_the_clock_of_its_idle_machine(tmp_path: Path) -> None:
    with Fleet(tmp_path) as fleet:
        place = Place(fleet, tmp_path)
        worker = place.stepping()
        place.step(HOUR)
        until(lambda: b"the ledger's clock was set" in worker.log.read_bytes(), "the log to say so")
        until(lambda: _is_ready(worker), "a worker that is ready")
        assert scrape(worker.metrics)["runturn_clock_ahead_seconds", ()] == pytest.approx(0, abs=2)


def _is_ready(worker: Worker) -> bool:
    return verdict(worker.metrics.replace("metrics", "readyz")) == (200, {})
