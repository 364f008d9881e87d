"""What Celery's users do with a task, they can do with a turn: what is to follow on it follows, once."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import redis
from celery import Celery, chain, chord, group
from celery.exceptions import TaskRevokedError
from celery.result import AsyncResult

from tests.integration.canvas.company import Company
from tests.integration.turns.test_ends import hanging
from tests.support.fleets.fleet import WAIT_S, Fleet, slow_recording
from tests.support.fleets.rabbit_fleet import RabbitFleet
from tests.support.ledgers import tasks_of
from tests.support.waiting import until
from workers.app import create_app
from workers.errors import TurnFailed


def cut_off(fleet: Fleet) -> None:
    """Close all connections to the broker."""
    if isinstance(fleet, RabbitFleet):
        fleet.vhost.close_connections()
    else:
        with redis.Redis(unix_socket_path=str(fleet.broker.socket)) as client:
            client.client_kill_filter(_type="normal", skipme=True)


def app_of(fleet: Fleet) -> Celery:
    """As runturn's own producers have it."""
    return create_app(fleet.environment.get("RUNTURN_BROKER_URL", fleet.broker.url), fleet.broker.url)


def test_chain_goes_on_after_a_turn_and_from_turn_to_turn(fleet: Fleet, recording: Path, company: Company) -> None:
    fleet.start_worker()
    chain(company.turn(recording, "one"), company.turn(recording, "two"), company.body("after")).apply_async()
    task_id, result = company.received()
    assert (task_id, result["turn_id"], result["status"]) == ("after", "two", "completed")
    # What follows is published before the state is stored.
    until(lambda: company.state("one") == company.state("two") == "SUCCESS", "the states")
    until(lambda: not tasks_of(fleet.ledger, "two"), "the task to be noted as told")
    fleet.assert_nothing_left()


def test_links_of_a_turn_are_called(fleet: Fleet, recording: Path, company: Company) -> None:
    fleet.start_worker()
    turn = company.turn(recording, "linked")
    turn.link(company.body("first"))
    turn.link(company.body("second"))
    turn.apply_async()
    got = dict(company.received() for _ in range(2))
    assert {name: result["turn_id"] for name, result in got.items()} == {"first": "linked", "second": "linked"}


@pytest.mark.parametrize("turns", [1, 3])
def test_body_of_a_chord_gets_the_results_of_all_its_turns(
    fleet: Fleet, recording: Path, company: Company, turns: int
) -> None:
    fleet.start_worker()
    header = [company.turn(recording, f"part-{number}") for number in range(turns)]
    chord(header)(company.body("body"))
    task_id, results = company.received()
    assert task_id == "body"
    assert [result["turn_id"] for result in results] == [f"part-{number}" for number in range(turns)]


def test_turn_is_the_body_of_a_chord(fleet: Fleet, recording: Path, company: Company) -> None:
    fleet.start_worker()
    header = group(company.turn(recording, "left"), company.turn(recording, "right"))
    answer = chord(header)(company.turn(recording, "closing"))
    assert answer.get(timeout=WAIT_S)["turn_id"] == "closing"


def test_failed_turn_is_a_failed_task(fleet: Fleet, company: Company) -> None:
    fleet.start_worker()
    turn = company.turn(fleet.root / "missing.jsonl", "failing")
    turn.link_error(company.body("on-error"))
    answer = chain(turn, company.body("never")).apply_async()
    assert company.received() == ("on-error", "failing")
    failed = AsyncResult("failing", app=company.app)
    assert failed.state == "FAILURE"
    kind, message, result = failed.result.args
    assert (result["turn_id"], result["error"]["kind"], result["error"]["message"]) == ("failing", kind, message)
    assert answer.state == "FAILURE", "what was to follow will never come"
    ours = AsyncResult("failing", app=app_of(fleet)).result
    assert isinstance(ours, TurnFailed)
    assert str(ours) == f"{kind} (failing)"


def test_failure_can_be_asked_for_as_an_answer(fleet: Fleet, recording: Path, company: Company) -> None:
    fleet.start_worker()
    header = [
        company.turn(fleet.root / "missing.jsonl", "bad", failure="return"),
        company.turn(recording, "good", failure="return"),
    ]
    chord(header)(company.body("both"))
    _, results = company.received()
    assert [result["status"] for result in results] == ["failed", "completed"]


def test_task_is_started_where_its_turn_runs(
    fleet: Fleet, recording: Path, company: Company, tmp_path: Path
) -> None:
    fleet.start_worker()
    slow = slow_recording(tmp_path / "slow.jsonl", recording, 1500)
    answer = company.turn(slow, "slow").apply_async()
    until(lambda: answer.state == "STARTED", "the task to be started")
    assert answer.info == {"host": "local", "attempt": 1}
    assert answer.get(timeout=WAIT_S)["status"] == "completed"


def test_task_is_retried_while_its_turn_waits(fleet: Fleet, company: Company, tmp_path: Path) -> None:
    fleet.environment["RUNTURN_AGENT__RETRY_BACKOFF_MS"] = "3600000"
    fleet.start_worker()
    before = datetime.now(UTC) - timedelta(seconds=1)  # whole seconds are told
    fields = {"stall_timeout_ms": 300, "max_retry_backoff_ms": 3_600_000}
    answer = company.turn(hanging(tmp_path / "hanging.jsonl", 2), "parked", **fields).apply_async()
    until(lambda: answer.state == "RETRY", "the turn to be parked")
    kind, due_at = answer.info.args
    assert kind == "turn_stalled"
    assert before <= datetime.fromisoformat(due_at) <= datetime.now(UTC) + timedelta(hours=1)
    fleet.client.cancel("parked")
    with pytest.raises(TaskRevokedError):
        answer.get(timeout=WAIT_S)


def test_message_of_celerys_first_protocol_is_a_turn_with_what_follows_on_it(
    fleet: Fleet, recording: Path, company: Company
) -> None:
    fleet.start_worker()
    company.app.conf.task_protocol = 1
    turn = company.turn(recording, "old")
    turn.link(company.body("after"))
    answer = turn.apply_async()
    task_id, result = company.received()
    assert (task_id, result["turn_id"]) == ("after", "old")
    assert answer.get(timeout=WAIT_S)["status"] == "completed"


def test_cancelled_turn_is_a_revoked_task(fleet: Fleet, recording: Path, company: Company, tmp_path: Path) -> None:
    fleet.start_worker()
    answer = company.turn(slow_recording(tmp_path / "slow.jsonl", recording, 60_000), "endless").apply_async()
    until(lambda: answer.state == "STARTED", "the task to be started")
    fleet.client.cancel("endless")
    with pytest.raises(TaskRevokedError):
        answer.get(timeout=WAIT_S)
    assert fleet.result("endless").status == "cancelled"


def test_chain_goes_on_after_a_killed_worker_and_a_restarted_broker(
    fleet: Fleet, recording: Path, company: Company, tmp_path: Path
) -> None:
    worker = fleet.start_worker()
    slow = slow_recording(tmp_path / "slow.jsonl", recording, 1500)
    chain(company.turn(slow, "survivor"), company.body("after")).apply_async()
    until(lambda: len(fleet.events("survivor")) > 1, "the turn to be under way")
    worker.kill()
    fleet.start_worker()
    fleet.broker.stop()
    until(lambda: fleet.ledger.reports.result("survivor"), "the turn to be settled without a broker")
    assert tasks_of(fleet.ledger, "survivor") == {"survivor"}
    fleet.broker.ensure()
    task_id, result = company.received()
    assert (task_id, result["turn_id"], result["attempts"]) == ("after", "survivor", 1)
    until(lambda: not tasks_of(fleet.ledger, "survivor"), "the task to be noted as told")


def test_worker_consumes_no_queue_that_it_has_sent_to(fleet: Fleet, recording: Path, company: Company) -> None:
    """Celery would from the next reconnection on, and what is somebody else's would be buried as unknown."""
    fleet.start_worker()
    chain(company.turn(recording, "one"), company.body("after")).apply_async()
    assert company.received()[0] == "after"
    until(lambda: not tasks_of(fleet.ledger, "one"), "the task to be noted as told")
    cut_off(fleet)
    company.app.send_task("company.other", args=["theirs"], task_id="other")
    assert fleet.run(fleet.recorded(recording)).status == "completed"  # it is connected again
    assert company.received() == ("other", "theirs")
    assert not fleet.ledger.dead_letters.newest(1)


def test_body_of_a_chord_comes_once_its_queue_is_there(fleet: Fleet, recording: Path, company: Company) -> None:
    """On RabbitMQ, a queue that nobody has declared takes nothing: the chord is not over until it does."""
    worker = fleet.start_worker()
    header = [company.turn(recording, name) for name in ("left", "right")]
    chord(header)(company.body("body").set(queue="later"))
    if isinstance(fleet, RabbitFleet):
        until(
            lambda: worker.log.read_bytes().count(b"a task's end will be delivered later") > 1,
            "the worker to have tried it twice",
        )
    with company.app.connection_for_read() as connection, connection.SimpleQueue("later") as queue:
        message = queue.get(timeout=WAIT_S)
        message.ack()
    assert message.headers["id"] == "body"
    assert [result["turn_id"] for result in message.payload[0][0]] == ["left", "right"]
    until(lambda: not any(map(fleet.ledger.waiters.of, ("left", "right"))), "the tasks to be noted as told")


def test_links_have_ids_by_which_a_repetition_is_known(
    fleet: Fleet, recording: Path, company: Company, tmp_path: Path
) -> None:
    turn = company.turn(slow_recording(tmp_path / "slow.jsonl", recording, 400), "linked")
    turn.link(company.app.signature("company.first"))
    turn.apply_async()
    fleet.start_worker()
    (waiter,) = until(lambda: fleet.ledger.waiters.of("linked"), "its message")
    message = waiter.message or ""
    (link,) = json.loads(message)["embed"]["callbacks"]
    assert company.received()[0] == link["options"]["task_id"]


def test_chord_that_is_sent_again_comes_again(
    fleet: Fleet, recording: Path, company: Company, tmp_path: Path
) -> None:
    """Its turns are the same, and so are their tasks; what follows on these is another chord."""
    header = [
        company.turn(slow_recording(tmp_path / "slow.jsonl", recording, 400), "slow"),
        company.turn(recording, "quick"),
    ]
    for name in ("first", "second"):
        chord(header)(company.body(name))
    fleet.start_worker()
    got = dict(company.received() for _ in range(2))
    assert {name: [part["turn_id"] for part in parts] for name, parts in got.items()} == {
        "first": ["slow", "quick"],
        "second": ["slow", "quick"],
    }
    assert fleet.ledger.reports.turn("slow").attempts == 1
