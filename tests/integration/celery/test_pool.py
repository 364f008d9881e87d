"""What Celery's own tools see of turns, and do to them: inspect, revoke, time limits, ETAs, the pool's size."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from celery import Celery

from adapters.protocol.request import TurnRequest
from adapters.protocol.result import Status
from tests.integration.turns.test_ends import FOR_EVER, hanging
from tests.support.fleets.fleet import WAIT_S, Fleet
from tests.support.ledgers import tasks_of
from tests.support.waiting import until
from workers.app import QUEUE, TASK, create_app


@pytest.fixture
def app(fleet: Fleet) -> Iterator[Celery]:
    app = create_app(fleet.broker.url)
    yield app
    app.close()


def document(request: TurnRequest) -> dict[str, Any]:
    return request.model_dump(mode="json", exclude_defaults=True) | {"agent": request.agent}


def send(app: Celery, request: TurnRequest, **options: Any) -> None:
    sent = document(request) | {"turn_id": request.turn_id}
    app.send_task(TASK, args=[sent], queue=QUEUE, **{"task_id": request.turn_id, **options})


def answer(app: Celery, task_id: str) -> Any:
    until(lambda: app.backend.get_state(task_id) == "SUCCESS", "the task's result", WAIT_S)
    return app.backend.get_result(task_id)


def endless(fleet: Fleet, tmp_path: Path, **fields: Any) -> TurnRequest:
    recording = tmp_path / "endless.jsonl"  # written once: an agent may be reading it
    return fleet.recorded(recording if recording.exists() else hanging(recording, 2), **fields)


@contextmanager
def events_of(app: Celery) -> Iterator[list[dict[str, Any]]]:
    """What monitors such as Flower are told."""
    seen: list[dict[str, Any]] = []
    receiver = app.events.Receiver(app.connection_for_read(), handlers={"*": seen.append})
    looks = count(1)
    receiver.on_iteration = lambda: ready.set() if next(looks) > 1 else None
    ready = threading.Event()  # it has subscribed with its first look, and stays so: nothing is missed between two

    def listen() -> None:
        for _ in receiver.consume(safety_interval=0.2, wakeup=False):
            pass

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    assert ready.wait(60)
    try:
        yield seen
    finally:
        receiver.should_stop = True
        listener.join(60)


def told_of(seen: list[dict[str, Any]], task_id: str) -> Counter[str]:
    return Counter(event["type"] for event in seen if event.get("uuid") == task_id)


def running(fleet: Fleet, turn_id: str) -> None:
    until(lambda: len(fleet.events(turn_id)) > 1, "the turn to be under way", WAIT_S)


def test_inspect_tells_what_is_so(fleet: Fleet, app: Celery, tmp_path: Path) -> None:
    fleet.start_worker("--concurrency", "3")
    turn_id = fleet.client.enqueue(endless(fleet, tmp_path))
    running(fleet, turn_id)
    ((_, (active,)),) = app.control.inspect(timeout=60, limit=1).active().items()
    shown = "(scripted on any host: do it)"
    assert (active["id"], active["name"], active["args"], active["kwargs"]) == (turn_id, TASK, shown, "{}")
    ((_, stats),) = app.control.inspect(timeout=60, limit=1).stats().items()
    pool = stats["pool"]
    assert (pool["max-concurrency"], pool["turns"]) == (3, 1)
    assert stats["prefetch_count"] == 3
    fleet.client.cancel(turn_id)
    fleet.result(turn_id)
    until(
        lambda: not any(app.control.inspect(timeout=60, limit=1).active().values()),
        "the turn to be gone from there",
    )


def test_terminated_turn_ends_and_is_announced_once(fleet: Fleet, app: Celery, tmp_path: Path) -> None:
    fleet.start_worker()
    request = endless(fleet, tmp_path)
    with events_of(app) as seen:
        send(app, request)
        running(fleet, request.turn_id)
        until(lambda: told_of(seen, request.turn_id)["task-started"], "the start to be told")
        app.control.revoke(request.turn_id, terminate=True)
        assert fleet.result(request.turn_id).status is Status.CANCELLED
        until(lambda: not tasks_of(fleet.ledger, request.turn_id), "its task to be told")
        until(lambda: told_of(seen, request.turn_id)["task-revoked"], "the end to be told")
    told = told_of(seen, request.turn_id)
    assert (told["task-revoked"], told["task-succeeded"], told["task-started"]) == (1, 0, 1)
    assert app.backend.get_state(request.turn_id) == "REVOKED"
    fleet.assert_nothing_left()


def test_turn_is_terminated_by_the_id_of_any_task_that_asked_for_it(
    fleet: Fleet, app: Celery, tmp_path: Path
) -> None:
    fleet.start_worker()
    request = endless(fleet, tmp_path)
    send(app, request)
    running(fleet, request.turn_id)
    send(app, request, task_id="copy")
    until(lambda: "copy" in tasks_of(fleet.ledger, request.turn_id), "the copy to be known")
    app.control.revoke("copy", terminate=True)
    assert fleet.result(request.turn_id).status is Status.CANCELLED


def test_revoked_turn_that_waits_never_runs(fleet: Fleet, app: Celery, tmp_path: Path) -> None:
    fleet.start_worker("--concurrency", "1")
    first, second = endless(fleet, tmp_path), endless(fleet, tmp_path)
    send(app, first)
    running(fleet, first.turn_id)
    send(app, second)
    until(lambda: tasks_of(fleet.ledger, second.turn_id), "the ledger to have it")
    app.control.revoke(second.turn_id)
    app.control.revoke(first.turn_id)  # without terminate: it runs already, and goes on
    fleet.client.cancel(first.turn_id)
    result = fleet.result(second.turn_id)
    assert (result.status, result.attempts) == (Status.CANCELLED, 0)
    until(lambda: app.backend.get_state(second.turn_id) == "REVOKED", "the task to be revoked")


def test_turn_revoked_before_its_message_came_never_runs(fleet: Fleet, app: Celery, tmp_path: Path) -> None:
    fleet.start_worker()
    app.control.revoke("doomed")
    until(
        lambda: any("doomed" in ids for ids in app.control.inspect(timeout=60, limit=1).revoked().values()),
        "it to be known",
    )
    send(app, endless(fleet, tmp_path, turn_id="doomed"))
    result = fleet.result("doomed")
    assert (result.status, result.attempts) == (Status.CANCELLED, 0)


@pytest.mark.parametrize("limit", ["time_limit", "soft_time_limit"])
def test_time_limits_of_celery_hold(fleet: Fleet, app: Celery, tmp_path: Path, limit: str) -> None:
    fleet.start_worker()
    request = endless(fleet, tmp_path)
    send(app, request, **{limit: 1})
    result = fleet.result(request.turn_id)
    assert result.error is not None
    assert (result.error.kind, result.attempts) == ("turn_timeout", 1)
    fleet.assert_nothing_left()


def test_turn_with_an_eta_waits_in_the_ledger_and_not_in_a_worker(
    fleet: Fleet, app: Celery, recording: Path
) -> None:
    worker = fleet.start_worker()
    request = fleet.recorded(recording)
    eta = datetime.now(UTC) + timedelta(seconds=4)
    send(app, request, eta=eta)
    until(lambda: tasks_of(fleet.ledger, request.turn_id), "the ledger to have it")
    worker.kill()  # and with it whatever it had in memory
    fleet.start_worker()
    assert fleet.result(request.turn_id).status is Status.COMPLETED
    assert (fleet.ledger.reports.turn(request.turn_id).started_at or 0.0) >= eta.timestamp()


def test_pool_grows_and_shrinks(fleet: Fleet, app: Celery, tmp_path: Path) -> None:
    fleet.start_worker("--concurrency", "1")
    ids = [fleet.client.enqueue(endless(fleet, tmp_path)) for _ in range(2)]
    running(fleet, ids[0])
    assert fleet.ledger.reports.turn(ids[1]).state == "queued"
    app.control.pool_grow(1)
    running(fleet, ids[1])
    app.control.pool_shrink(2)
    third = fleet.client.enqueue(endless(fleet, tmp_path))
    for turn_id in ids:
        fleet.client.cancel(turn_id)
        fleet.result(turn_id)
    assert fleet.ledger.reports.turn(third).attempts == 0
    app.control.pool_grow(1)
    running(fleet, third)


def test_pool_is_scaled_by_what_runs(fleet: Fleet, app: Celery, tmp_path: Path) -> None:
    fleet.environment["AUTOSCALE_KEEPALIVE"] = "1"
    fleet.start_worker("--autoscale", "2,1")

    def places() -> set[int]:
        return {
            stats["pool"]["max-concurrency"] for stats in app.control.inspect(timeout=60, limit=1).stats().values()
        }

    assert places() == {1}
    ids = [fleet.client.enqueue(endless(fleet, tmp_path)) for _ in range(3)]
    for turn_id in ids[:2]:
        running(fleet, turn_id)
    assert (places(), fleet.ledger.reports.turn(ids[2]).attempts) == ({2}, 0)
    app.control.autoscale(3, 1)
    running(fleet, ids[2])
    for turn_id in ids:
        fleet.client.cancel(turn_id)
        fleet.result(turn_id)
    until(lambda: places() == {1}, "the pool to shrink again")


def test_other_tasks_see_their_results_too(fleet: Fleet, app: Celery, recording: Path) -> None:
    """A turn that was sent five times runs once, and every task ends for those who watch."""
    fleet.start_worker()
    request = fleet.recorded(recording)
    ids = [request.turn_id, *(f"copy{n}" for n in range(4))]
    with events_of(app) as seen:
        for task_id in ids:
            send(app, request, task_id=task_id)
        results = [answer(app, task_id) for task_id in ids]
        until(lambda: all(told_of(seen, task_id)["task-succeeded"] for task_id in ids), "all ends to be told")
    assert [result["turn_id"] for result in results] == [request.turn_id] * 5
    assert all(told_of(seen, task_id)["task-succeeded"] == 1 for task_id in ids)
    assert fleet.ledger.reports.turn(request.turn_id).attempts == 1


def test_worker_that_drains_waits_for_its_turns_and_takes_no_more(fleet: Fleet, tmp_path: Path) -> None:
    worker = fleet.start_worker("--drain")
    turn_id = fleet.client.enqueue(endless(fleet, tmp_path))
    running(fleet, turn_id)
    worker.terminate()
    until(lambda: b"worker is stopping" in worker.log.read_bytes(), "the worker to have heard it")
    late = fleet.client.enqueue(endless(fleet, tmp_path))
    fleet.client.cancel(turn_id)
    assert fleet.result(turn_id).status is Status.CANCELLED
    assert worker.wait() == 0
    assert fleet.ledger.reports.turn(late).attempts == 0


@pytest.mark.parametrize("told", [signal.SIGTERM, signal.SIGINT])
def test_worker_that_drains_leaves_its_turns_when_told_again(
    fleet: Fleet, tmp_path: Path, told: signal.Signals
) -> None:
    worker = fleet.start_worker("--drain")
    turn_id = fleet.client.enqueue(endless(fleet, tmp_path))
    running(fleet, turn_id)
    worker.process.send_signal(told)
    until(lambda: b"worker is stopping" in worker.log.read_bytes(), "the worker to have heard it")
    worker.process.send_signal(told)
    assert worker.wait() == 0
    assert fleet.ledger.reports.turn(turn_id).state == "running"
    fleet.start_worker()
    fleet.client.cancel(turn_id)
    assert fleet.result(turn_id).attempts == 1


def test_killed_workers_leave_no_entry_in_the_broker(fleet: Fleet, app: Celery) -> None:
    for _ in range(2):
        worker = fleet.start_worker()
        assert app.control.inspect(timeout=60, limit=1).ping()
        worker.kill()
    with app.connection_for_read() as connection, connection.default_channel.conn_or_acquire() as client:
        assert client.keys("_kombu.binding.celery.pidbox") == []


def test_producers_share_a_worker_evenly(fleet: Fleet, recording: Path) -> None:
    """One producer's many turns do not starve another's one."""
    bulk = [fleet.client.enqueue(fleet.recorded(recording, producer="bulk")) for _ in range(12)]
    one = fleet.client.enqueue(fleet.recorded(recording, producer="single"))
    fleet.start_worker("--concurrency", "2")
    for turn_id in (*bulk, one):
        fleet.result(turn_id)
    began = sorted((fleet.ledger.reports.turn(turn_id).started_at or 0.0, turn_id) for turn_id in (*bulk, one))
    assert one in [turn_id for _, turn_id in began[:2]]


def test_result_of_a_turn_shows_nothing_it_said(fleet: Fleet, app: Celery, recording: Path) -> None:
    fleet.start_worker()
    request = fleet.recorded(recording)
    with events_of(app) as seen:
        send(app, request)
        answer(app, request.turn_id)
        until(lambda: told_of(seen, request.turn_id)["task-succeeded"], "its end to be told")
    (event,) = [event for event in seen if event["type"] == "task-succeeded"]
    assert event["result"] == "<completed 9540 tokens $0.0117>"
    assert FOR_EVER not in str(seen)
    assert event["runtime"] < time.time()
