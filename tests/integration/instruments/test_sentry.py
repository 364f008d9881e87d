"""Sentry's integration with Celery, in a worker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from celery import chain

from tests.integration.canvas.company import Company
from tests.integration.instruments.company import PROMPT, SECRET, WORDS, CompanyFleet, company_fleet
from tests.integration.instruments.sentry_server import SentryServer
from tests.integration.turns.test_ends import hanging
from tests.support.places import RECORDINGS
from tests.support.waiting import until
from workers.app import TASK

TEST = "tests/integration/instruments/test_sentry.py::test_failed_turn_is_one_event_with_its_kind_and_id"
DSN = "https://key@sentry.example/1"


@pytest.fixture(scope="module")
def sentry() -> Iterator[SentryServer]:
    with SentryServer() as server:
        yield server


@pytest.fixture(scope="module")
def fleet(sentry: SentryServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CompanyFleet]:
    """Its workers send traces, too."""
    replaced = {f'"{DSN}"': f'"{sentry.dsn}", traces_sample_rate=1.0'}
    with company_fleet(tmp_path_factory.mktemp("reported"), TEST, replaced) as fleet:
        yield fleet


def event_of(sentry: SentryServer, turn_id: str) -> dict[str, object]:
    """The one event of a turn."""

    def found() -> list[dict[str, object]]:
        return [event for event in sentry.events if event["tags"]["celery_task_id"] == turn_id]

    until(found, f"the event of {turn_id}")
    (event,) = found()
    return event


def test_failed_turn_is_one_event_with_its_kind_and_id(fleet: CompanyFleet, sentry: SentryServer) -> None:
    app, confidential = Company(fleet).app, [f"{PROMPT} {SECRET}"]
    request = fleet.failing("failing").model_dump(mode="json", exclude_defaults=True)
    turn = app.signature(TASK, args=[request], task_id="failing", queue="runturn", immutable=True)
    turn.link_error(app.signature("company.sorry", args=confidential, immutable=True))
    chain(turn, app.signature("company.after", args=confidential, immutable=True)).apply_async()
    event = event_of(sentry, "failing")
    (raised,) = event["exception"]["values"]
    assert (raised["type"], raised["value"]) == ("TurnFailed", "port_exit (failing)")
    assert event["transaction"] == "runturn.run_turn"


def test_turns_that_end_otherwise_are_no_events(fleet: CompanyFleet, sentry: SentryServer, tmp_path: Path) -> None:
    fleet.run(fleet.recorded(RECORDINGS / "a_parallel_tools.jsonl"))
    fleet.client.enqueue(fleet.recorded(hanging(tmp_path / "hanging.jsonl", 5), turn_id="cancelled"))
    until(fleet.agents, "its agent")
    fleet.client.cancel("cancelled")
    fleet.result("cancelled")
    fleet.run(fleet.failing("last"))
    event_of(sentry, "last")  # what is sent is sent in order
    assert [event["tags"]["celery_task_id"] for event in sentry.events] == ["failing", "last"]


def test_nothing_that_was_said_is_sent(fleet: CompanyFleet, sentry: SentryServer) -> None:
    fleet.run(fleet.failing("telling"))
    event_of(sentry, "telling")
    sent = json.dumps(sentry.items)
    assert "attempt started" in sent, "what the worker logs is sent along"
    assert "runturn.run_turn" in {item["transaction"] for kind, item in sentry.items if kind == "transaction"}
    for said in (PROMPT, SECRET, WORDS):
        assert said not in sent
