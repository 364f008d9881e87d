"""Modules that workers import: their signal handlers hear of turns, and their tasks run beside them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from celery import Celery
from celery.canvas import chunks, xmap

from adapters.protocol.result import Status
from tests.integration.canvas.company import Company
from tests.support.brokers.node import Vhost
from tests.support.fleets import included
from tests.support.fleets.fleet import WAIT_S, Fleet
from tests.support.fleets.impatient import IMPATIENT
from tests.support.fleets.rabbit_fleet import RabbitFleet
from tests.support.places import RECORDINGS
from tests.support.waiting import lines_of, until
from workers.brokers.redis_transport import UNACKED

RECORDING = RECORDINGS / "a_parallel_tools.jsonl"
SETTINGS = {"include": json.dumps([included.__name__]), "queues": '["runturn", "own"]'}


def fleet_in(root: Path) -> Fleet:
    fleet = Fleet(root, **SETTINGS)
    fleet.environment["NOTES"] = str(root / "notes")
    return fleet


def noted(fleet: Fleet) -> list[list[Any]]:
    return [json.loads(line) for line in lines_of(fleet.root / "notes")]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """With one worker, which takes one turn at a time."""
    with fleet_in(tmp_path_factory.mktemp("included")) as fleet:
        fleet.start_worker("--concurrency", "1")
        yield fleet


@pytest.fixture
def app(fleet: Fleet) -> Celery:
    """A producer's own."""
    return Company(fleet).app


def test_signal_handlers_hear_of_turns(fleet: Fleet) -> None:
    result = fleet.run(fleet.recorded(RECORDING, turn_id="heard"))
    assert result.status is Status.COMPLETED
    until(lambda: ["after", "runturn.run_turn", "heard", "SUCCESS"] in noted(fleet), "the end to be heard of")
    assert noted(fleet)[0] == ["begun"]
    assert ["before", "runturn.run_turn", "heard"] in noted(fleet)


def test_own_task_follows_a_turn_in_the_same_worker(fleet: Fleet, app: Celery) -> None:
    turn = Company(fleet).turn(RECORDING, "followed")
    answer = (turn | app.signature("company.told", queue="own")).apply_async()
    assert answer.get(timeout=WAIT_S) == "followed completed"


@pytest.mark.parametrize("queue", ["runturn", "own"])
def test_own_task_is_mapped_as_in_celery(app: Celery, queue: str) -> None:
    task, results = app.signature("company.told"), [{"turn_id": name, "status": "done"} for name in "ab"]
    answer = xmap(task, results, app=app).apply_async(queue=queue)
    assert answer.get(timeout=WAIT_S) == ["a done", "b done"]
    parts = chunks(task, [[each] for each in results], 1, app=app).apply_async(queue=queue)
    assert parts.get(timeout=WAIT_S) == [["a done"], ["b done"]]
    with pytest.raises(KeyError, match="status"):
        xmap(task, [{"turn_id": "a"}], app=app).apply_async(queue=queue).get(timeout=WAIT_S)


@pytest.mark.parametrize("queue", ["runturn", "own"])
def test_own_task_is_tried_again_where_it_came_from(app: Celery, queue: str) -> None:
    assert app.send_task("company.persist", [2], queue=queue).get(timeout=WAIT_S) == 2


def test_own_tasks_in_a_queue_of_their_own_hold_up_no_turns(fleet: Fleet, app: Celery) -> None:
    file = fleet.root / "released"
    waiting = [app.send_task("company.wait", [str(file)], queue="own") for _ in range(2)]
    until(lambda: ["waits", str(file)] in noted(fleet), "one to run")
    assert fleet.run(fleet.recorded(RECORDING)).status is Status.COMPLETED
    file.touch()
    for answer in waiting:
        answer.get(timeout=WAIT_S)
    assert "time limits are enforced for turns only" in fleet.workers[0].log.read_text()  # its time limit


def test_own_task_is_not_said_to_be_ended(fleet: Fleet, app: Celery) -> None:
    file = fleet.root / "never ended"
    answer = app.send_task("company.wait", [str(file)], queue="own")
    until(lambda: ["waits", str(file)] in noted(fleet), "it to run")
    (reply,) = app.control.revoke(answer.id, terminate=True, reply=True, timeout=60, limit=1)
    (said,) = reply.values()
    assert said == {"error": f"tasks {answer.id} are not turns: their threads cannot be terminated"}
    file.touch()
    answer.get(timeout=WAIT_S)


def test_task_of_nobody_is_a_dead_letter(fleet: Fleet, app: Celery) -> None:
    with pytest.raises(Exception, match="there is no task"):
        app.send_task("company.unknown", queue="own").get(timeout=WAIT_S)


def test_own_tasks_run_on_rabbitmq(tmp_path: Path, vhost: Vhost) -> None:
    with RabbitFleet(tmp_path, vhost, **SETTINGS) as fleet:
        fleet.environment["NOTES"] = str(tmp_path / "notes")
        fleet.start_worker("--concurrency", "4")
        app = Celery(broker=vhost.url, set_as_current=False)
        for number in range(40):
            app.send_task("company.persist", [0], task_id=str(number), queue=("runturn", "own")[number % 2])
        assert fleet.run(fleet.recorded(RECORDING)).status is Status.COMPLETED
        ended = [["after", "company.persist", str(number), "SUCCESS"] for number in range(40)]
        until(lambda: all(note in noted(fleet) for note in ended), "all to run")
        until(lambda: not vhost.messages("runturn") + vhost.messages("own"), "all messages to be acked")
        assert [noted(fleet).count(note) for note in ended] == [1] * 40


def test_worker_leaves_its_own_tasks_to_the_next_one(tmp_path: Path) -> None:
    with fleet_in(tmp_path) as fleet, redis.Redis(unix_socket_path=str(fleet.broker.socket)) as client:
        app, file = Company(fleet).app, tmp_path / "released"
        first = fleet.start_worker()
        answer = app.send_task("company.wait", [str(file)], queue="own")
        until(lambda: len(noted(fleet)) > 1, "it to run")
        first.terminate()
        assert first.wait(30) == 0
        until(lambda: client.llen("own") and not client.hlen(UNACKED), "it to be back in its queue")
        fleet.start_worker()
        until(lambda: noted(fleet).count(["waits", str(file)]) == 2, "it to run again")
        file.touch()
        answer.get(timeout=WAIT_S)


def test_worker_outlives_a_broker_that_restarts_under_a_task_of_its_own(tmp_path: Path) -> None:
    with fleet_in(tmp_path) as fleet, redis.Redis(unix_socket_path=str(fleet.broker.socket)) as client:
        app, file = Company(fleet).app, tmp_path / "released"
        worker = fleet.start_worker(prefix=(sys.executable, "-c", IMPATIENT))
        app.send_task("company.wait", [str(file)], queue="own")
        until(lambda: ["waits", str(file)] in noted(fleet), "it to run")
        assert client.hlen(UNACKED) == 1
        fleet.broker.stop()
        fleet.broker.ensure()
        assert fleet.run(fleet.recorded(RECORDING)).status is Status.COMPLETED
        file.touch()
        until(lambda: not client.hlen(UNACKED) and not client.llen("own"), "it to be acked")
        assert worker.process.poll() is None


@pytest.mark.parametrize(
    ("module", "text", "said"),
    [
        ("nowhere.at_all", None, "ModuleNotFoundError: No module named 'nowhere'"),
        (
            "broken",
            "raise RuntimeError(__import__('os').environ['COMPANY_TOKEN'])",
            "RuntimeError: [redacted:COMPANY_TOKEN]",
        ),
    ],
)
def test_module_that_cannot_be_imported_is_refused_by_name(
    tmp_path: Path, module: str, text: str | None, said: str
) -> None:
    if text:
        (tmp_path / f"{module}.py").write_text(text)
    with Fleet(tmp_path, include=json.dumps([module])) as fleet:
        secret = {"PYTHONPATH": str(tmp_path), "COMPANY_TOKEN": "sk-0123456789abcdefghij"}
        done = fleet.command("worker", env={**fleet.environment, **secret})
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"runturn: include: {module} cannot be imported: {said}\n"
