"""What Celery's users say with a task beside its arguments, and what they tell workers of it, holds for turns."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from celery.exceptions import TaskRevokedError
from celery.result import AsyncResult

from tests.integration.canvas.company import Company
from tests.integration.celery.test_pool import app, endless, events_of, running, send, told_of  # noqa: F401  # a fixture
from tests.integration.sessions.test_sessions_of_turns import document
from tests.integration.turns.test_ends import hanging
from tests.support.fleets.fleet import WAIT_S, Fleet, slow_recording
from tests.support.ledgers import tasks_of
from tests.support.waiting import until
from workers.app import SESSION_TASK, TASK
from workers.brokers.settings import priority_of


@pytest.fixture
def company(fleet: Fleet) -> Company:
    return Company(fleet)


def busy(fleet: Fleet, tmp_path: Path) -> str:
    """Start a worker, and a turn that takes its only place; returns the turn's id."""
    fleet.start_worker("--concurrency", "1")
    turn_id = fleet.client.enqueue(fleet.recorded(hanging(tmp_path / "busy.jsonl", 2)))
    running(fleet, turn_id)
    return turn_id


def replies(app: Celery, command: str, **arguments: Any) -> list[Any]:  # noqa: F811
    (answers,) = app.control.broadcast(command, arguments=arguments, reply=True, timeout=60, limit=1)
    return list(answers.values())


def test_task_that_expires_while_its_turn_waits_never_runs(
    fleet: Fleet, company: Company, recording: Path, tmp_path: Path
) -> None:
    first = busy(fleet, tmp_path)
    with events_of(company.app) as seen:
        answer = company.turn(recording, "late").apply_async(expires=0.5)
        until(lambda: tasks_of(fleet.ledger, "late"), "the ledger to have it")
        until(lambda: fleet.ledger.reports.turn("late").created_at + 1 < time.time(), "its time to be over")
        fleet.client.cancel(first)
        with pytest.raises(TaskRevokedError, match="expired"):
            answer.get(timeout=WAIT_S)
        until(lambda: told_of(seen, "late")["task-revoked"], "the end to be told")
    (told,) = [event for event in seen if event["type"] == "task-revoked" and event["uuid"] == "late"]
    assert (told["expired"], told["terminated"]) == (True, False)
    result = fleet.result("late")
    assert (result.status, result.attempts) == ("cancelled", 0)
    assert result.error is not None
    assert result.error.kind == "turn_expired"


def test_turn_that_somebody_else_wants_later_does_not_expire(
    fleet: Fleet, company: Company, recording: Path, tmp_path: Path
) -> None:
    first = busy(fleet, tmp_path)
    turn = company.turn(recording, "shared")
    hasty = turn.apply_async(expires=0.5)
    turn.apply_async(task_id="patient")
    until(lambda: len(tasks_of(fleet.ledger, "shared")) == 2, "the ledger to have both")
    until(
        lambda: fleet.ledger.reports.turn("shared").created_at + 1 < time.time(), "the first one's time to be over"
    )
    fleet.client.cancel(first)
    assert AsyncResult("patient", app=company.app).get(timeout=WAIT_S)["status"] == "completed"
    assert hasty.get(timeout=WAIT_S)["status"] == "completed"


def test_session_of_turns_that_expires_while_it_waits_never_runs(
    fleet: Fleet, company: Company, tmp_path: Path
) -> None:
    first = busy(fleet, tmp_path)
    asked = document(fleet, "late", "true")
    answer = company.app.send_task(SESSION_TASK, [asked], task_id="late", queue="runturn", expires=0.5)
    until(lambda: tasks_of(fleet.ledger, "late"), "the ledger to have it")
    until(lambda: fleet.ledger.reports.turn("late.1").created_at + 1 < time.time(), "its time to be over")
    fleet.client.cancel(first)
    with pytest.raises(TaskRevokedError, match="expired"):
        answer.get(timeout=WAIT_S)


def test_task_of_a_session_is_started_where_its_turn_runs(fleet: Fleet, company: Company) -> None:
    fleet.start_worker()
    asked = document(fleet, "session", "sleep 600")
    answer = company.app.send_task(SESSION_TASK, [asked], task_id="its-task", queue="runturn")
    until(lambda: answer.state == "STARTED", "the task to be started")
    assert answer.info == {"turn": "session.1", "host": "local", "attempt": 1}
    fleet.client.cancel("session")
    with pytest.raises(TaskRevokedError):
        answer.get(timeout=WAIT_S)


def test_tasks_are_revoked_by_their_stamps(
    fleet: Fleet, company: Company, recording: Path, tmp_path: Path
) -> None:
    fleet.start_worker("--concurrency", "1")
    held = company.turn(hanging(tmp_path / "held.jsonl", 2), "held")
    held.stamp(release=["r1"], tenant="t")
    waiting, other = (company.turn(recording, name) for name in ("waiting", "other"))
    waiting.stamp(release=["r1", "r2"])
    other.stamp(release=["r3"])
    answers = {turn.options["task_id"]: turn.apply_async() for turn in (held, waiting, other)}
    running(fleet, "held")
    until(lambda: all(map(fleet.ledger.waiters.of, answers)), "the ledger to have all")
    company.app.control.revoke_by_stamped_headers({"release": "r1"}, terminate=False)
    with pytest.raises(TaskRevokedError):
        answers["waiting"].get(timeout=WAIT_S)
    late = company.turn(recording, "late")
    late.stamp(release="r1")
    with pytest.raises(TaskRevokedError):
        late.apply_async().get(timeout=WAIT_S)
    assert answers["held"].state == "STARTED"
    company.app.control.revoke_by_stamped_headers({"release": "r1"}, terminate=True)
    with pytest.raises(TaskRevokedError):
        answers["held"].get(timeout=WAIT_S)
    assert answers["other"].get(timeout=WAIT_S)["status"] == "completed"


def test_task_that_is_revoked_as_it_runs_keeps_its_result(
    fleet: Fleet, company: Company, recording: Path, tmp_path: Path
) -> None:
    """Without `terminate`, it runs on, is paid for, and is an answer like any other. So is a copy of it."""
    fleet.start_worker()
    held = hanging(tmp_path / "long.jsonl", 2)
    answer = company.turn(held, "long").apply_async()
    until(lambda: answer.state == "STARTED", "the task to be started")
    assert replies(company.app, "revoke", task_id="long") == [{"ok": "tasks long flagged as revoked"}]
    copy = company.turn(held, "long").apply_async(task_id="copy-of-long")
    until(lambda: "copy-of-long" in tasks_of(fleet.ledger, "long"), "the copy to be known")
    assert (answer.state, fleet.ledger.reports.turn("long").cancel_requested) == ("STARTED", False)
    assert copy.state == "PENDING"
    fleet.client.cancel("long")
    fleet.result("long")


def test_task_of_another_application_is_not_said_to_be_revoked(fleet: Fleet, company: Company) -> None:
    """Commands are told to all workers of a broker."""
    fleet.start_worker()
    replies(company.app, "revoke", task_id="somebody-elses")
    assert company.state("somebody-elses") == "PENDING"


def test_result_can_be_ignored(fleet: Fleet, company: Company, recording: Path) -> None:
    fleet.start_worker()
    turn = company.turn(recording, "ignored")
    turn.link(company.body("after"))
    turn.apply_async(ignore_result=True)
    task_id, result = company.received()
    assert (task_id, result["turn_id"]) == ("after", "ignored")
    until(lambda: not tasks_of(fleet.ledger, "ignored"), "the task to be noted as told")
    assert company.state("ignored") == "PENDING"


@pytest.mark.parametrize("task", [TASK, SESSION_TASK])
def test_rate_limits_are_refused_by_name(fleet: Fleet, company: Company, task: str) -> None:
    fleet.start_worker()
    (reply,) = replies(company.app, "rate_limit", task_name=task, rate_limit="1/m")
    assert reply["error"].startswith("turns have no rate limits: limit how many run at a time")
    (reply,) = replies(company.app, "rate_limit", task_name="celery.ping", rate_limit="1/m")
    assert reply == {"error": "unknown task"}


def test_producer_hears_of_a_message_that_is_no_turn(fleet: Fleet, company: Company, recording: Path) -> None:
    fleet.start_worker()
    unknown = company.app.send_task("runturn.no_such_task", [{}], queue="runturn")
    pickled = company.turn(recording, "pickled").apply_async(serializer="pickle")
    yaml = company.turn(recording, "yaml").apply_async(serializer="yaml")
    long = company.turn(recording, "long")
    long.link(company.app.signature("company.after", args=("x" * 11_000_000,)))
    for answer, said in (
        (unknown, "there is no task 'runturn.no_such_task'"),
        (pickled, "not accepted; send application/json"),
        (yaml, "not accepted; send application/json"),
        (long.apply_async(), "bytes long, and at most 10,485,760 can be kept"),
    ):
        with pytest.raises(Exception, match=said) as caught:
            answer.get(timeout=WAIT_S)
        assert type(caught.value).__name__ in ("MessageRefused", "MessageTooLong")


def test_signals_and_events_come_once_for_a_turn_that_is_taken_before_its_message(
    fleet: Fleet, company: Company, tmp_path: Path, recording: Path
) -> None:
    fleet.start_worker()
    request = fleet.recorded(slow_recording(tmp_path / "slow.jsonl", recording, 1500), turn_id="early")
    with events_of(company.app) as seen:
        fleet.ledger.queue.submit_many([request], time.time())
        running(fleet, "early")
        fleet.client.enqueue(request)
        fleet.result("early")
        until(lambda: not tasks_of(fleet.ledger, "early"), "its task to be told")
        until(lambda: told_of(seen, "early")["task-succeeded"], "the end to be told")
    assert (told_of(seen, "early")["task-started"], told_of(seen, "early")["task-succeeded"]) == (1, 1)


@pytest.mark.parametrize(
    ("url", "given", "meant"),
    [
        ("redis://", None, 0),
        ("redis://", 0, 0),
        ("valkey://", 9, -9),
        ("amqp://", 0, 0),
        ("amqp://", 5, 5),
        ("amqp://", 255, 9),
        ("amqp://", "high", 0),
    ],
)
def test_priority_of_a_message_means_what_it_means_on_its_broker(url: str, given: object, meant: int) -> None:
    assert priority_of(url, given) == meant


def test_priority_of_a_message_is_that_of_its_turn(fleet: Fleet, company: Company, recording: Path) -> None:
    company.turn(recording, "low").apply_async(priority=9)
    company.turn(recording, "as-asked", priority=4).apply_async(priority=9)
    fleet.start_worker()
    for turn_id, priority in (("low", -9), ("as-asked", 4)):
        assert fleet.result(turn_id).status == "completed"
        request = fleet.ledger.reports.request(turn_id)
        assert request is not None
        assert request.priority == priority


def test_monitors_see_no_argument_of_what_follows(fleet: Fleet, company: Company, recording: Path) -> None:
    """The agent's words are one of them; others may be a producer's secrets."""
    fleet.start_worker()
    turn = company.turn(recording, "turn")
    turn.link(company.app.signature("company.after", args=("s3cret-token",), task_id="after"))
    with events_of(company.app) as seen:
        turn.apply_async()
        assert company.received()[0] == "after"
        until(lambda: told_of(seen, "turn")["task-succeeded"], "its end to be told")
    assert "s3cret-token" not in str(seen)
