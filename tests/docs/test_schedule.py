"""The schedule in docs/producers.md, sent by the real beat: one turn a night, and never two at a time."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from adapters.protocol.result import Status
from ops.ledger import TurnRow
from tests.docs.pages import page
from tests.integration.turns.test_ends import hanging
from tests.support.fleets.fleet import Fleet
from tests.support.places import RECORDINGS
from tests.support.waiting import until

NIGHTLY = "crontab(hour=2, minute=30)"
CELERY = Path(sys.executable).with_name("celery")
MARK = "tests/docs/test_schedule.py::test_nightly_turn_runs_once_a_night"
(PROGRAM,) = (
    block.text
    for block in page("docs/producers.md").blocks
    if block.language == "python" and MARK in block.tested_by
)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with Fleet(tmp_path_factory.mktemp("schedule")) as fleet:
        fleet.start_worker()
        yield fleet


@contextmanager
def beat(fleet: Fleet, folder: Path, recording: Path, *replaced: tuple[str, str]) -> Iterator[Path]:
    """`celery -A nightly beat` with what is said in the place of some of its words; its log."""
    agent = f'"agent": "scripted", "options": {{"recording": {str(recording)!r}}}'
    program = PROGRAM.replace('"workspace": "/srv/checkout"', f'"workspace": {str(fleet.workspace)!r}, {agent}')
    for old, new in replaced:
        assert program.count(old) == 1, old
        program = program.replace(old, new)
    (folder / "nightly.py").write_text(program)
    log = folder / "log"
    environment = {**fleet.environment, "RUNTURN_BROKER_URL": fleet.broker.url}
    with log.open("wb") as output:
        command = [CELERY, "-A", "nightly", "beat", "--loglevel", "INFO"]
        running = subprocess.Popen(command, env=environment, cwd=folder, stdout=output, stderr=output)
    try:
        yield log
    finally:
        running.send_signal(signal.SIGTERM)
        running.wait(30)


def nights(fleet: Fleet) -> list[str]:
    return [
        turn.turn_id for turn in fleet.ledger.reports.history(limit=100) if turn.turn_id.startswith("nightly-")
    ]


def test_nightly_turn_runs_once_a_night(fleet: Fleet, tmp_path: Path) -> None:
    recording, day = RECORDINGS / "a_parallel_tools.jsonl", datetime.now(UTC)
    with beat(fleet, tmp_path, recording, (NIGHTLY, f"{NIGHTLY} and 0.5")) as log:
        until(lambda: log.read_text().count("Sending due task nightly") >= 4, "it to be sent four times")
        until(lambda: nights(fleet), "the worker to have it")
    assert set(nights(fleet)) <= {f"nightly-{each:%Y-%m-%d}" for each in (day, datetime.now(UTC))}
    for turn_id in nights(fleet):
        assert fleet.result(turn_id).status is Status.COMPLETED
        assert fleet.ledger.reports.turn(turn_id).attempts == 1


def test_night_that_takes_too_long_ends_before_the_next_one(fleet: Fleet, tmp_path: Path) -> None:
    before = nights(fleet)

    def rows() -> list[TurnRow]:
        found = [turn for turn in fleet.ledger.reports.history(limit=100) if turn.turn_id.startswith("nightly-")]
        return [turn for turn in reversed(found) if turn.turn_id not in before]

    hurried = (
        (NIGHTLY, "6.0"),
        ("%Y-%m-%d", "%H-%M-%S"),
        ("hours=22", "seconds=2"),
    )
    with beat(fleet, tmp_path, hanging(tmp_path / "hanging.jsonl", 2), *hurried):
        until(lambda: [turn.started_at for turn in rows()[1:]] and rows()[1].started_at, "a second night")
    first, second, *_ = rows()
    assert first.settled_at is not None
    assert second.started_at is not None
    assert first.settled_at < second.started_at
    assert (first.status, first.error_kind) == ("failed", "deadline_exceeded")
    fleet.client.cancel(second.turn_id)
    fleet.result(second.turn_id)
