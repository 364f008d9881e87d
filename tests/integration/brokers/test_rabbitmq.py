"""RabbitMQ as the broker: turns run, and outlive what becomes of it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from celery import Celery, chain, chord
from kombu import Connection, Exchange, Queue

from adapters.protocol.result import Status
from tests.support.brokers.node import Node, Vhost
from tests.support.brokers.rabbitmq import RabbitMQ
from tests.support.fleets.fleet import WAIT_S, slow_recording
from tests.support.fleets.rabbit_fleet import RabbitFleet
from tests.support.ledgers import tasks_of
from tests.support.ports import free_port
from tests.support.waiting import until
from workers.app import QUEUE, TASK
from workers.brokers.settings import dead_queue

DEAD = dead_queue(QUEUE)

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


@pytest.fixture(scope="module")
def mortal() -> Iterator[RabbitMQ]:
    """A server to stop and to kill. Who stops it starts it again."""
    with RabbitMQ() as server:
        yield server


def stopped_and_started(server: RabbitMQ) -> None:
    server.stop()
    server.start()


def killed_and_started(server: RabbitMQ) -> None:
    server.sync()
    server.kill()
    server.start()


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
    until(lambda: fleet.ledger.reports.result("by-name"), "the turn to be settled")
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


def test_plain_virtual_host_will_do(tmp_path: Path, rabbitmq: Node, recording: Path) -> None:
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
    until(
        lambda: b"a task's end will be delivered later" in worker.log.read_bytes(),
        "the worker to have found no queue",
    )
    assert "celery" not in fleet.vhost.list_queues("type")
    assert tasks_of(fleet.ledger, "one")
    theirs = Queue("celery", Exchange("theirs", type="topic"), "#", queue_arguments={"x-max-length": 1000})
    with Connection(fleet.vhost.url) as connection:
        theirs(connection.default_channel).declare()
    until(lambda: fleet.vhost.messages("celery") == 1, "what follows")
    until(lambda: not tasks_of(fleet.ledger, "one"), "the task to be noted as told")


def _outlives(fault: Callable[[], None], fleet: RabbitFleet, recording: Path) -> None:
    """A turn that runs while it happens, and its worker."""
    worker = fleet.start_worker()
    turn_id = fleet.client.enqueue(fleet.recorded(slow_recording(fleet.root / "slow.jsonl", recording, 500)))
    until(lambda: len(fleet.events(turn_id)) > 2, "the turn to be under way")
    fault()
    assert fleet.result(turn_id).status is Status.COMPLETED
    names = [event["event"] for event in fleet.events(turn_id)]
    assert names.count("session_started") == names.count("attempt_started") == 1
    assert fleet.run(fleet.recorded(recording)).status is Status.COMPLETED
    assert worker.process.poll() is None, worker.log.read_text()
    _empty(fleet.vhost)
    fleet.assert_nothing_left()


@pytest.mark.parametrize("fault", [stopped_and_started, killed_and_started])
def test_turns_in_the_queue_and_a_running_one_and_its_worker_outlive_the_broker(
    mortal: RabbitMQ, recording: Path, tmp_path: Path, fault: Callable[[RabbitMQ], None]
) -> None:
    for place in ("busy", "idle"):
        (tmp_path / place).mkdir()
    with (
        RabbitFleet(tmp_path / "busy", mortal.new_vhost()) as busy,
        RabbitFleet(tmp_path / "idle", mortal.new_vhost()) as idle,
    ):
        turns = [idle.client.enqueue(idle.recorded(recording)) for _ in range(5)]
        _outlives(partial(fault, mortal), busy, recording)
        idle.start_worker()
        assert {idle.result(turn_id).status for turn_id in turns} == {Status.COMPLETED}
        _empty(idle.vhost)


def test_running_turn_and_its_worker_outlive_their_connections(fleet: RabbitFleet, recording: Path) -> None:
    _outlives(fleet.vhost.close_connections, fleet, recording)


def test_turn_that_cannot_be_queued_says_so(fleet: RabbitFleet) -> None:
    nobody = fleet.vhost.url.replace(str(fleet.vhost.server.port), str(free_port()))
    fleet.environment["RUNTURN_BROKER_URL"] = nobody
    said = fleet.command("enqueue", "do it")
    assert said.returncode == 3
    assert "no broker answers" in said.stderr


def test_queue_that_was_declared_in_another_way_is_named_and_not_used(fleet: RabbitFleet, recording: Path) -> None:
    with Connection(fleet.vhost.url) as connection:
        Queue(QUEUE, queue_arguments={"x-max-length": 5})(connection.default_channel).declare()
    for command in (["worker"], ["enqueue", "do it", "--agent", "scripted", "-o", f"recording={recording}"]):
        said = fleet.command(*command)
        assert said.returncode in (2, 3), said.stderr
        assert "already exists on the broker with different properties; delete it there" in said.stderr
        assert "inequivalent arg 'x-max-length'" in said.stderr
        assert "Traceback" not in said.stderr
