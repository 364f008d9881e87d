"""A turn outlives its workers, and runs once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from adapters.protocol.result import Status
from tests.support.fleets.fleet import WAIT_S, Fleet, slow_recording
from tests.support.waiting import until
from workers.app import TASK, create_app


def _seqs(fleet: Fleet, turn_id: str) -> list[int]:
    return [event["seq"] for event in fleet.events(turn_id)]


def test_killed_worker_is_succeeded_without_running_twice(fleet: Fleet, recording: Path, tmp_path: Path) -> None:
    slow = slow_recording(tmp_path / "slow.jsonl", recording, 1500)
    worker = fleet.start_worker()
    turn_id = fleet.client.enqueue(fleet.recorded(slow))
    until(lambda: len(fleet.events(turn_id)) > 1, "the turn to be under way")
    agent = fleet.agents()
    worker.kill()
    fleet.start_worker()
    result = fleet.result(turn_id)
    assert result.status is Status.COMPLETED
    assert result.attempts == 1
    assert len(agent) == 1
    names = [event["event"] for event in fleet.events(turn_id)]
    assert _seqs(fleet, turn_id) == list(range(1, len(names) + 1))
    assert names[0] == "attempt_started"
    assert names[-2:] == ["attempt_ended", "turn_settled"]
    assert names.count("session_started") == 1
    totals = [row for row in fleet.ledger.reports.totals().models if row.observed]
    assert [row.tokens.input_tokens for row in totals] == [result.usage.input_tokens] == [1050]
    fleet.assert_nothing_left()


def test_worker_told_to_stop_leaves_ten_turns_to_the_next(fleet: Fleet, recording: Path, tmp_path: Path) -> None:
    slow = slow_recording(tmp_path / "slow.jsonl", recording, 2000)
    worker = fleet.start_worker()
    turns = [fleet.client.enqueue(fleet.recorded(slow)) for _ in range(10)]
    until(lambda: all(len(fleet.events(turn_id)) > 2 for turn_id in turns), "ten turns to be under way")
    agents = fleet.agents()
    assert len(agents) == 10
    worker.terminate()
    assert worker.wait() == 0
    assert fleet.agents() == agents, "it waits for none of them"
    fleet.start_worker()
    results = [fleet.result(turn_id) for turn_id in turns]
    assert {result.status for result in results} == {Status.COMPLETED}
    assert {result.attempts for result in results} == {1}
    for turn_id in turns:
        seqs = _seqs(fleet, turn_id)
        assert seqs == list(range(1, len(seqs) + 1))
    fleet.assert_nothing_left()


def test_same_turn_sent_five_times_at_once_runs_once(fleet: Fleet, recording: Path, tmp_path: Path) -> None:
    slow = slow_recording(tmp_path / "slow.jsonl", recording, 200)
    fleet.start_worker()
    request = fleet.recorded(slow, turn_id="five")
    app = create_app(fleet.broker.url)
    document = request.model_dump(mode="json", exclude_defaults=True)
    with ThreadPoolExecutor(5) as pool:
        task_ids = ["five", "five", "five", "other-1", "other-2"]
        sent = list(pool.map(lambda task_id: app.send_task(TASK, args=[document], task_id=task_id), task_ids))
    answers = [task.get(timeout=WAIT_S) for task in sent]
    assert len(answers) == 5
    assert all(answer == answers[0] for answer in answers)
    assert answers[0]["status"] == "completed"
    names = [event["event"] for event in fleet.events("five")]
    assert names.count("attempt_started") == names.count("session_started") == names.count("turn_settled") == 1
    fleet.assert_nothing_left()
