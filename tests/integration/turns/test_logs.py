"""What a worker's log tells of its turns, and of those who work beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.fleets.fleet import Fleet, Worker
from tests.support.ledgers import tasks_of
from tests.support.waiting import until
from workers.client.sync import Client

OF_AN_ATTEMPT = ("attempt", "host", "session_id")


def lines(worker: Worker) -> list[dict[str, Any]]:
    """The whole log. Whoever writes to it in another form fails this."""
    return [json.loads(line) for line in worker.log.read_text().splitlines()]


@pytest.fixture
def fleet(tmp_path: Path) -> Any:
    with Fleet(tmp_path, log_level="debug") as fleet:
        yield fleet


def test_lines_of_a_turn_name_turn_attempt_host_and_session_and_all_are_json(fleet: Fleet) -> None:
    worker = fleet.start_worker()
    prompt = "the prompt stays out of it"
    silent = {"lines": ["{}", '{"after_ms":600000}']}
    ran = fleet.run(fleet.request(prompt, agent="scripted", options=silent, max_attempts=2, stall_timeout_ms=200))
    refused = fleet.run(fleet.request(prompt, agent="scripted", options={"lines": ["{}"]}, host="nowhere"))
    for result in (ran, refused):
        until(lambda turn_id=result.turn_id: not tasks_of(fleet.ledger, turn_id), "the answers")  # type: ignore[misc]
    fleet.broker.stop()
    until(lambda: "celery.worker.consumer.consumer" in worker.log.read_text(), "Celery to tell of it")
    fleet.broker.ensure()
    until(lambda: _answers(fleet.client), "the worker to be back")
    worker.terminate()
    assert worker.wait() == 0
    log = lines(worker)
    ours = [line for line in log if line.get("turn_id") == ran.turn_id]
    said = [line["event"] for line in ours]
    assert said.count("attempt started") == ran.attempts == 2
    assert said[-1] == "turn settled"
    for line in ours:
        assert line["host"] == "local"
        assert line["attempt"] in (1, 2)
        assert line["session_id"]
    (line,) = [line for line in log if line.get("turn_id") == refused.turn_id]
    assert (line["event"], line["outcome"]) == ("turn settled", "invalid_request")
    assert not any(name in line for name in OF_AN_ATTEMPT)
    assert prompt not in worker.log.read_text()


def _answers(client: Client) -> bool:
    return bool(client._app.control.inspect(timeout=1).ping())
