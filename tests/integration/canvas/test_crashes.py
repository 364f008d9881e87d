"""Whatever moment a worker is killed at, each task of a canvas comes, and each of its turns runs once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from celery import chain, chord

from tests.integration.canvas.company import Company
from tests.integration.canvas.mortal import MOMENTS
from tests.support.fleets.fleet import Fleet
from tests.support.waiting import until

Shape = Callable[[Company, Path], object]


def linked(company: Company, recording: Path) -> None:
    turn = company.turn(recording, "linked")
    turn.link(company.body("after-linked"))
    turn.apply_async()


def failing(company: Company, recording: Path) -> None:
    turn = company.turn(recording.with_name("missing.jsonl"), "failing")
    turn.link_error(company.body("after-failing"))
    turn.apply_async()


def first(company: Company, recording: Path) -> None:
    following = company.turn_after(recording, "next", {"prompt": "text"})
    chain(company.turn(recording, "first"), following, company.body("after-first")).apply_async()


def middle(company: Company, recording: Path) -> None:
    turns = (company.turn(recording, name) for name in ("before", "middle", "last"))
    chain(*turns, company.body("after-middle")).apply_async()


def part(company: Company, recording: Path) -> None:
    header = [company.turn(recording, name) for name in ("part", "other-part")]
    chord(header)(company.body("after-part"))


def closing(company: Company, recording: Path) -> None:
    body = company.turn(recording, "closing")
    body.link(company.body("after-closing"))
    chord([company.turn(recording, "left"), company.turn(recording, "right")])(body)


SHAPES: tuple[Shape, ...] = (linked, failing, first, middle, part, closing)  # by the turn that is struck
TURNS = ("linked", "first", "next", "before", "middle", "last", "part", "other-part", "left", "right", "closing")


@pytest.mark.parametrize("moment", MOMENTS)
def test_worker_killed_at_any_moment_costs_no_task_of_a_canvas(
    fleet: Fleet,
    company: Company,
    recording: Path,
    moment: str,
) -> None:
    names = [shape.__name__ for shape in SHAPES]
    fleet.module = "tests.integration.canvas.mortal"
    for shape in SHAPES:
        fleet.environment["MORTAL"] = f"{moment}/{shape.__name__}"
        worker = fleet.start_worker()
        shape(company, recording)
        until(lambda worker=worker: worker.process.poll() is not None, f"the end at {shape.__name__}")  # type: ignore[misc]
        assert worker.process.poll() == -9, worker.log.read_text()
    fleet.module = "workers.__main__"
    fleet.start_worker()
    missing = {f"after-{name}" for name in names}
    while missing:
        task_id, _ = company.received()
        missing.discard(task_id)
    until(lambda: not any(map(fleet.ledger.waiters.of, (*TURNS, "failing"))), "all tasks to be noted as told")
    for turn_id in TURNS:
        assert (fleet.result(turn_id).status, fleet.result(turn_id).attempts) == ("completed", 1)
        assert [event["event"] for event in fleet.events(turn_id)].count("session_started") == 1
        assert company.state(turn_id) == "SUCCESS"
    assert company.state("failing") == "FAILURE"
    following = fleet.ledger.reports.request("next")
    assert following is not None
    assert following.prompt == f"do it\n\n<result>\n{fleet.result('first').text}\n</result>"
    fleet.assert_nothing_left()
