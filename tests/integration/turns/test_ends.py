"""How turns end when they do not end by themselves."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from celery.exceptions import TaskRevokedError

from adapters.protocol.result import Status
from tests.fakes.model_api import Reply, Script, Text, Usage, replies
from tests.integration.conftest import claude_fleet
from tests.support.fleets.fleet import WAIT_S, Fleet
from tests.support.places import RECORDINGS
from tests.support.waiting import until
from workers.app import create_app

SONNET = "claude-sonnet-4-5"
FOR_EVER = '{"after_ms":600000}'


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """One fleet with a worker for the whole module."""
    with Fleet(tmp_path_factory.mktemp("ends")) as fleet:
        fleet.start_worker()
        yield fleet


def hanging(path: Path, after: int) -> Path:
    """A recording that stops for ever after so many lines."""
    lines = (RECORDINGS / "a_parallel_tools.jsonl").read_text().splitlines()
    path.write_text("\n".join([*lines[:after], FOR_EVER, *lines[after:]]) + "\n")
    return path


def soon(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


@pytest.mark.parametrize(
    ("after", "limit", "kind"),
    [
        (0, {"read_timeout_ms": 300}, "read_timeout"),
        (2, {"stall_timeout_ms": 500}, "turn_stalled"),
        (2, {"turn_timeout_ms": 1000}, "turn_timeout"),
        (2, {"max_total_tokens": 4000}, "budget_exceeded"),
        (2, {"max_cost_usd": 0.004}, "budget_exceeded"),
    ],
)
def test_limit_ends_the_agent_and_keeps_what_there_was(
    fleet: Fleet, tmp_path: Path, after: int, limit: dict[str, Any], kind: str
) -> None:
    result = fleet.run(fleet.recorded(hanging(tmp_path / "r.jsonl", after), max_attempts=1, **limit))
    assert result.error is not None
    assert (result.status, result.error.kind, result.attempts) == (Status.FAILED, kind, 1)
    assert result.text == ("I will run two." if after else "")
    # The scripted agent has no session files: its answers are booked as far as it printed them.
    assert result.usage_source == ("session_files" if after else "none")
    assert (result.cost_usd is not None, result.usage_complete) == (after > 0, after == 0)
    fleet.assert_nothing_left()


def test_deadline_holds_for_the_whole_turn(fleet: Fleet, tmp_path: Path) -> None:
    result = fleet.run(fleet.recorded(hanging(tmp_path / "r.jsonl", 2), deadline=soon(1.5)))
    assert result.error is not None
    assert result.error.kind == "deadline_exceeded"
    late = fleet.run(fleet.recorded(hanging(tmp_path / "r.jsonl", 2), deadline=soon(-1)))
    assert late.error is not None
    assert (late.error.kind, late.attempts) == ("deadline_exceeded", 0)


def test_stalled_turn_is_tried_again_as_often_as_asked(fleet: Fleet, tmp_path: Path) -> None:
    recording = hanging(tmp_path / "r.jsonl", 2)
    request = fleet.recorded(recording, stall_timeout_ms=300, max_attempts=3, max_paid_retries=2)
    result = fleet.run(request)
    assert result.error is not None
    assert (result.error.kind, result.attempts) == ("turn_stalled", 3)
    events = fleet.events(result.turn_id)
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    ended = [event for event in events if event["event"] == "attempt_ended"]
    assert [event["retry_at"] is not None for event in ended] == [True, True, False]


def test_turn_cancelled_in_the_queue_never_starts(tmp_path: Path, recording: Path) -> None:
    with Fleet(tmp_path) as fleet:
        turn_id = fleet.client.enqueue(fleet.recorded(recording))
        assert fleet.client.cancel(turn_id)
        result = fleet.result(turn_id)
        assert (result.status, result.attempts) == (Status.CANCELLED, 0)
        fleet.start_worker()
        waiting = create_app(fleet.broker.url).AsyncResult(turn_id)
        with pytest.raises(TaskRevokedError):
            waiting.get(timeout=WAIT_S)
        assert not fleet.client.cancel(turn_id)
        assert fleet.events(turn_id) == []


def test_lease_ends_an_agent_that_no_worker_follows(tmp_path: Path) -> None:
    with Fleet(tmp_path, agent__lease_ms="2000") as fleet:
        worker = fleet.start_worker()
        turn_id = fleet.client.enqueue(fleet.recorded(hanging(tmp_path / "r.jsonl", 2), max_attempts=1))
        until(lambda: len(fleet.events(turn_id)) > 2, "the turn to be under way")
        worker.kill()
        until(
            lambda: any(file.read_text().strip() for file in fleet.state.spool.glob("*/end")), "the lease to end"
        )
        fleet.start_worker()
        result = fleet.result(turn_id)
        assert result.error is not None
        assert result.error.kind == "host_lost"
        fleet.assert_nothing_left()


def test_overloaded_api_is_tried_again_in_a_fresh_session(tmp_path: Path) -> None:
    script = Script(
        "busy", (replies.overloaded(), replies.overloaded(), Reply((Text("fine"),), Usage(200, 22, 40, 9)))
    )
    with claude_fleet(tmp_path, script) as (fleet, api):
        result = fleet.run(fleet.request(options={"model": SONNET, "max_api_retries": 0}))
        assert (result.status, result.text, result.attempts) == (Status.COMPLETED, "fine", 3)
        assert result.usage.input_tokens == api.bill("busy").by_model[SONNET].input == 200
        assert result.usage_complete


def test_second_turn_waits_for_the_session(tmp_path: Path) -> None:
    script = Script(
        "shared",
        (
            Reply((Text("first"),), Usage(10, 1)),
            Reply((replies.bash("sleep 2"),), Usage(20, 2)),
            Reply((Text("second"),), Usage(30, 3)),
            Reply((Text("third"),), Usage(40, 4)),
        ),
    )
    with claude_fleet(tmp_path, script) as (fleet, api):
        first = fleet.run(fleet.request(options={"model": SONNET}))
        held = fleet.client.enqueue(fleet.request(options={"model": SONNET}, session_id=first.session_id))
        api.wait_for_requests("shared", 2)
        waits = fleet.client.enqueue(fleet.request(options={"model": SONNET}, session_id=first.session_id))
        until(
            lambda: (row := fleet.ledger.reports.turn(waits)) and row.wait_reason == "session_in_use", "it to wait"
        )
        assert fleet.result(held).text == "second"
        assert fleet.result(waits).text == "third"
        assert fleet.result(waits).attempts == 1


def test_unknown_session_is_refused_before_anything_is_spent(fleet: Fleet, recording: Path) -> None:
    result = fleet.run(fleet.recorded(recording, session_id="793003ef-e365-4309-9088-dbcd3765d527"))
    assert result.error is not None
    assert (result.error.kind, result.attempts) == ("session_not_found", 0)
