"""RabbitMQ as the broker: turns run, and outlive what becomes of it."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from celery import Celery, chain, chord
from kombu import Connection, Exchange, Queue

from adapters.result import Status
from tests.brokers.rabbitmq import RabbitMQ, Vhost
from tests.waiting import until
from tests.workers.fleet import WAIT_S, slow_recording
from tests.workers.rabbit_fleet import RabbitFleet
from workers.app import QUEUE, TASK, create_app
from workers.brokers import dead_queue
from workers.messages import send

DEAD = dead_queue(QUEUE)
Fault = Callable[[Vhost], None]

PRODUCER = """
import sys
from celery import Celery

app = Celery(broker=sys.argv[1])
request = {"prompt": "do it", "workspace": sys.argv[2], "agent": "scripted", "options": {"recording": sys.argv[3]}}
app.send_task("runturn.run_turn", args=[request], task_id="by-name", queue="runturn")
"""


@pytest.fixture
def fleet(tmp_path: Path, vhost: Vhost) -> Iterator[RabbitFleet]:
    """A fleet without a worker yet."""
    with RabbitFleet(tmp_path, vhost) as fleet:
        yield fleet


def stopped_and_started(vhost: Vhost) -> None:
    vhost.server.stop()
    vhost.server.start()


def killed_and_started(vhost: Vhost) -> None:
    vhost.server.sync()
    vhost.server.kill()
    vhost.server.start()


def cut_off(vhost: Vhost) -> None:
    vhost.close_connections()


def _empty(vhost: Vhost) -> None:
    until(lambda: not vhost.messages(QUEUE), "all messages to be acked")
    assert not vhost.messages(DEAD.name)


def test_turn_runs_and_the_broker_holds_nothing_but_what_is_needed(fleet: RabbitFleet, recording: Path) -> None:
    worker = fleet.start_worker()
    result = fleet.run(fleet.recorded(recording))
    assert result.status is Status.COMPLETED
    assert fleet.events(result.turn_id)[-1]["event"] == "turn_settled"
    _empty(fleet.vhost)
    queues = fleet.vhost.list_queues("type", "durable")
    kept = {name: columns for name, columns in queues.items() if "pidbox" not in name}
    assert kept == {QUEUE: ("quorum", "true"), DEAD.name: ("quorum", "true")}
    ours = {name for name in fleet.vhost.list_exchanges() if "celery" not in name}
    assert ours == {QUEUE, "runturn.events.topic"}
    assert not [name for name in fleet.vhost.list_exchanges() if "delayed" in name]
    worker.terminate()
    assert worker.wait() == 0
    fleet.assert_nothing_left()


def test_watcher_sees_events_live(fleet: RabbitFleet, recording: Path, tmp_path: Path) -> None:
    fleet.start_worker()
    turn_id = fleet.client.enqueue(fleet.recorded(slow_recording(tmp_path / "slow.jsonl", recording, 200)))
    numbers = [event["seq"] for event in fleet.client.events(turn_id)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert fleet.result(turn_id).status is Status.COMPLETED


def test_any_producer_needs_the_name_of_the_queue_only(fleet: RabbitFleet, recording: Path) -> None:
    fleet.start_worker()
    said = subprocess.run(
        [sys.executable, "-c", PRODUCER, fleet.vhost.url, str(fleet.workspace), str(recording)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == 0, said.stderr
    until(lambda: fleet.ledger.result("by-name"), "the turn to be settled")
    assert fleet.result("by-name").status is Status.COMPLETED
    _empty(fleet.vhost)


def test_results_come_over_rabbitmq_itself(tmp_path: Path, vhost: Vhost, recording: Path) -> None:
    """By `rpc://`, on both sides: no Redis is needed."""
    with RabbitFleet(tmp_path, vhost, result_url="rpc://") as fleet:
        fleet.start_worker()
        app = Celery(broker=vhost.url, backend="rpc://", set_as_current=False)
        good = fleet.recorded(recording, turn_id="good").model_dump(mode="json", exclude_defaults=True)
        bad = good | {"turn_id": "bad", "options": {"recording": "/missing"}}
        first, second, failed = (
            app.signature(TASK, args=[document], queue=QUEUE, immutable=True)
            for document in (good, good | {"turn_id": "second"}, bad)
        )
        assert chain(first, second).apply_async().get(timeout=WAIT_S)["turn_id"] == "second"
        with pytest.raises(Exception, match="port_exit"):
            failed.apply_async().get(timeout=WAIT_S)
        with pytest.raises(Exception, match="not accepted; send application/json"):
            first.apply_async(serializer="pickle").get(timeout=WAIT_S)
        with pytest.raises(NotImplementedError):
            chord([first, second])(failed)


def test_plain_virtual_host_will_do(tmp_path: Path, rabbitmq: RabbitMQ, recording: Path) -> None:
    """Its queue of turns is a classic one then."""
    with RabbitFleet(tmp_path, rabbitmq.new_vhost(prepared=False)) as fleet:
        fleet.start_worker()
        assert fleet.run(fleet.recorded(recording)).status is Status.COMPLETED
        assert fleet.vhost.list_queues("type")[QUEUE] == ("classic",)
        _empty(fleet.vhost)


def test_what_follows_waits_for_its_queue_and_that_is_declared_by_whose_it_is(
    fleet: RabbitFleet, recording: Path
) -> None:
    worker = fleet.start_worker()
    app = Celery(broker=fleet.vhost.url, set_as_current=False)
    document = fleet.recorded(recording, turn_id="one").model_dump(mode="json", exclude_defaults=True)
    after = app.signature("company.after", task_id="after")
    app.signature(TASK, args=[document], task_id="one", queue=QUEUE).apply_async(link=after)
    until(lambda: b"a task is told later" in worker.log.read_bytes(), "the worker to have found no queue")
    assert "celery" not in fleet.vhost.list_queues("type")
    assert fleet.ledger.waiters("one")
    theirs = Queue("celery", Exchange("theirs", type="topic"), "#", queue_arguments={"x-max-length": 1000})
    with Connection(fleet.vhost.url) as connection:
        theirs(connection.default_channel).declare()
    until(lambda: fleet.vhost.messages("celery") == 1, "what follows")
    until(lambda: not fleet.ledger.waiters("one"), "the task to be noted as told")


@pytest.mark.parametrize("fault", [stopped_and_started, killed_and_started])
def test_queued_turns_outlive_the_broker(fleet: RabbitFleet, recording: Path, fault: Fault) -> None:
    turns = [fleet.client.enqueue(fleet.recorded(recording)) for _ in range(5)]
    fault(fleet.vhost)
    fleet.start_worker()
    assert {fleet.result(turn_id).status for turn_id in turns} == {Status.COMPLETED}
    _empty(fleet.vhost)


@pytest.mark.parametrize("fault", [stopped_and_started, killed_and_started, cut_off])
def test_running_turn_and_its_worker_outlive_the_broker(
    fleet: RabbitFleet, recording: Path, tmp_path: Path, fault: Fault
) -> None:
    worker = fleet.start_worker()
    turn_id = fleet.client.enqueue(fleet.recorded(slow_recording(tmp_path / "slow.jsonl", recording, 500)))
    until(lambda: len(fleet.events(turn_id)) > 2, "the turn to be under way")
    fault(fleet.vhost)
    assert fleet.result(turn_id).status is Status.COMPLETED
    names = [event["event"] for event in fleet.events(turn_id)]
    assert names.count("session_started") == names.count("attempt_started") == 1
    assert fleet.run(fleet.recorded(recording)).status is Status.COMPLETED
    assert worker.process.poll() is None, worker.log.read_text()
    _empty(fleet.vhost)
    fleet.assert_nothing_left()


def test_turn_longer_than_the_consumer_timeout_runs_once(tmp_path: Path, recording: Path) -> None:
    with ExitStack() as stack:
        vhost = stack.enter_context(RabbitMQ(consumer_timeout_s=1)).new_vhost()
        fleet = stack.enter_context(RabbitFleet(tmp_path, vhost))
        worker = fleet.start_worker()
        turn_id = fleet.client.enqueue(fleet.recorded(slow_recording(tmp_path / "slow.jsonl", recording, 500)))
        assert fleet.result(turn_id).status is Status.COMPLETED
        names = [event["event"] for event in fleet.events(turn_id)]
        assert names.count("session_started") == names.count("attempt_started") == 1
        assert fleet.run(fleet.recorded(recording)).status is Status.COMPLETED
        assert worker.process.poll() is None, worker.log.read_text()
        _empty(vhost)


def test_message_held_beyond_the_consumer_timeout_does_not_end_the_worker(tmp_path: Path, recording: Path) -> None:
    with ExitStack() as stack:
        vhost = stack.enter_context(RabbitMQ(consumer_timeout_s=1)).new_vhost()
        fleet = stack.enter_context(RabbitFleet(tmp_path, vhost))
        worker = fleet.start_worker()
        request = fleet.recorded(recording)
        with closing(sqlite3.connect(fleet.state.ledger_url.removeprefix("sqlite:///"))) as other:
            other.execute("BEGIN IMMEDIATE")  # the ledger takes nothing, so the message stays unacknowledged
            send(create_app(vhost.url), [request])
            until(lambda: b"PRECONDITION_FAILED" in worker.log.read_bytes(), "RabbitMQ to lose patience")
            other.rollback()
        until(lambda: fleet.ledger.result(request.turn_id), "the turn to be settled")
        names = [event["event"] for event in fleet.events(request.turn_id)]
        assert names.count("session_started") == names.count("attempt_started") == 1
        assert worker.process.poll() is None, worker.log.read_text()
        _empty(vhost)


def test_turn_that_cannot_be_queued_says_so(fleet: RabbitFleet) -> None:
    fleet.vhost.server.stop()
    try:
        said = fleet.command("enqueue", "do it")
    finally:
        fleet.vhost.server.start()
    assert said.returncode == 3
    assert "no broker answers" in said.stderr


def test_queue_that_was_declared_in_another_way_is_named_and_not_used(fleet: RabbitFleet, recording: Path) -> None:
    with Connection(fleet.vhost.url) as connection:
        Queue(QUEUE, queue_arguments={"x-max-length": 5})(connection.default_channel).declare()
    for command in (["worker"], ["enqueue", "do it", "--agent", "scripted", "-o", f"recording={recording}"]):
        said = fleet.command(*command)
        assert said.returncode in (2, 3), said.stderr
        assert "declared in another way; delete it there" in said.stderr
        assert "inequivalent arg 'x-max-length'" in said.stderr
        assert "Traceback" not in said.stderr
