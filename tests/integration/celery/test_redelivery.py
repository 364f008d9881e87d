"""What is no part of a task's end does not keep it from being delivered, and no part of it comes twice."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from celery import chord, group, signals
from celery.app import trace

from adapters.protocol.result import Status, TurnResult
from ops.ledger import Claim
from tests.fakes.failures import fail_once
from tests.integration.celery.test_delivery import FAILED, Bench, Sqlite, Valkey, server, valkey
from tests.support.brokers.fixtures import rabbitmq, vhost
from tests.support.brokers.node import Vhost
from tests.support.fleets.site import Site
from tests.support.ledgers import tasks_of
from workers.app import TASK, create_app
from workers.tasks import celery_internals, delivery
from workers.tasks.celery_request import ShownRequest
from workers.tasks.kept_message import keep
from workers.tasks.waiting import WaitingTasks

__all__ = ["rabbitmq", "server", "valkey", "vhost"]

DONE = TurnResult(turn_id="t1", status=Status.COMPLETED)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(Sqlite(tmp_path / "results.db").url, monkeypatch)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.close()


# -- what others do while a task's end is delivered


def test_handler_of_a_signal_that_cannot_send_is_no_reason_to_tell_again(bench: Bench) -> None:
    heard = []

    def audit(**_: Any) -> None:
        heard.append(1)
        bench.app.send_task("company.audit", task_id="audit")

    signals.task_success.connect(audit)
    bench.refuse("audit")
    try:
        bench.turn().apply_async()
        (waiter,) = bench.waiters()
        assert bench.execute(waiter).done
    finally:
        signals.task_success.disconnect(audit)
    assert (bench.state("t1"), heard) == ("SUCCESS", [1])


@pytest.mark.parametrize("raises", [True, False])
def test_errback_in_the_same_process_is_called_once(bench: Bench, *, raises: bool) -> None:
    """Whether it fails, or its neighbour cannot be sent."""
    called = []

    @bench.app.task(name="company.on_error", typing=False, shared=False)  # type: ignore[untyped-decorator]
    def on_error(request: Any, exc: Any, traceback: Any) -> None:
        called.append(exc.kind)
        if raises:
            raise ValueError("a bug of theirs")

    turn = bench.turn()
    turn.link_error(bench.company.signature("company.on_error"))
    turn.link_error(bench.after("sent"))
    turn.apply_async()
    (waiter,) = bench.waiters()
    bench.refuse("sent")
    executed = bench.execute(waiter, FAILED)
    assert not executed.done
    waiter = replace(waiter, sent=frozenset(executed.sent))
    bench.refused.clear()
    assert bench.execute(waiter, FAILED).done
    assert (called, bench.ids, bench.state("t1")) == (["failed"], ["sent"], "FAILURE")


def test_errbacks_that_are_groups_are_all_sent(bench: Bench) -> None:
    turn = bench.turn()
    for names in ("ab", "cd"):
        turn.link_error(group(bench.after(name).set(immutable=True) for name in names))
    turn.apply_async()
    (waiter,) = bench.waiters()
    assert bench.execute(waiter, FAILED).done
    assert sorted(bench.ids) == ["a", "b", "c", "d"]


def test_link_with_wrong_arguments_is_a_failure_of_the_task(bench: Bench) -> None:
    """As with any task of Celery's."""

    @bench.app.task(name="company.own", shared=False)  # type: ignore[untyped-decorator]
    def own() -> None:
        """Takes no result."""

    turn = bench.turn()
    turn.link(bench.company.signature("company.own"))
    turn.apply_async()
    (waiter,) = bench.waiters()
    assert bench.execute(waiter).done
    assert bench.state("t1") == "FAILURE"


def test_what_a_worker_sends_to_no_queue_is_refused(vhost: Vhost) -> None:
    """RabbitMQ would drop it, and workers declare no queue but their own."""
    app = create_app(vhost.url, "cache+memory://")
    celery_internals.prepare_queues(app)
    delivery.install(app)
    with pytest.raises(Exception, match="NO_ROUTE"):
        app.send_task("company.mail", queue="emails")
    app.close()


def test_turn_that_begins_while_a_consumer_connects_is_told_as_any_other(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Celery's consumer builds tracers of its own then, for all tasks."""
    assert bench.state("t1") == "PENDING"
    fail_once(monkeypatch, type(bench.app.backend), "_store_result", ConnectionError("reset by peer"))
    bench.turn().apply_async()
    (waiter,) = bench.waiters()
    task = bench.app.tasks[TASK]
    task.__trace__ = trace.build_tracer(TASK, task, bench.app.loader, "worker@here", app=bench.app)
    assert not bench.execute(waiter).done
    assert bench.state("t1") == "PENDING"


# -- what is counted, kept and noted


def test_turn_that_another_version_tells_again_counts_once(
    valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker was killed over it, and the next one's results have a field more."""

    class Newer(TurnResult):
        one_more: str | None = None

    bench = Bench(valkey.url, monkeypatch)
    chord([bench.turn("t1"), bench.turn("t2")])(bench.after("body"))
    first, second = bench.waiters()
    assert bench.execute(first).done
    assert bench.execute(first, Newer(turn_id="t1", status=Status.COMPLETED)).done
    assert bench.ids == []
    assert bench.execute(second).done
    (body,) = bench.sent
    assert [each["turn_id"] for each in json.loads(base64.b64decode(body["body"]))[0][0]] == ["t1", "t2"]


def test_chord_without_a_group_is_none(valkey: Valkey, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(valkey.url, monkeypatch)
    bench.turn().set(chord=bench.after("body")).apply_async()
    (waiter,) = bench.waiters()
    assert bench.execute(waiter).done
    assert bench.state("t1") == "SUCCESS"


def test_threads_share_a_few_connections_to_results(valkey: Valkey, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(valkey.url, monkeypatch)
    pool = bench.app.backend.client.connection_pool
    held = [pool.get_connection() for _ in range(8)]
    pool.timeout = 0
    with pytest.raises(redis.exceptions.ConnectionError, match="No connection available"):
        pool.get_connection()
    for each in held:
        pool.release(each)


def test_headers_that_are_no_json_are_left_out(bench: Bench) -> None:
    """Plugins of brokers add them."""
    bench.turn().apply_async()
    (message,) = bench.sent
    body = json.loads(base64.b64decode(message["body"]))
    headers = {**message["headers"], "x-price": Decimal("1.5"), "x-raw": b"\xff", "x-plain": "kept"}
    raw = SimpleNamespace(headers=headers, body=body, properties={}, delivery_info={}, content_type="")
    _, kept = keep(ShownRequest(raw, app=bench.app, headers=headers, body=body, decoded=True))
    assert [name for name in json.loads(kept)["headers"] if name.startswith("x-")] == ["x-plain"]


@pytest.mark.parametrize(("results", "apart"), [("rpc://", True), ("redis://localhost", False)])
def test_producer_that_was_started_again_asks_anew_over_rpc(results: str, *, apart: bool) -> None:
    """Its first process does not read its queue any more."""

    def digest(reply_to: str) -> str:
        app = SimpleNamespace(conf=SimpleNamespace(result_backend=results))
        asked = SimpleNamespace(turn={})
        message = SimpleNamespace(properties={"reply_to": reply_to})
        request: Any = SimpleNamespace(
            app=app, asked=asked, embed={}, group=None, id="t1", message=message, request_dict={"id": "t1"}
        )
        return keep(request)[0]

    assert (digest("first") != digest("second")) is apart


def claimed(site: Site, *, message: str | None) -> Claim:
    request = site.request(turn_id="t1", options={"lines": ["{}"]})
    if message is not None:
        site.ledger.queue.admit(request, "t1", site.now(), message=message)
    else:
        site.ledger.queue.submit_many([request], site.now())
    (claim,) = site.ledger.queue.take("w", lambda _: True, site.now(), 60, 1)
    return claim


def drive(site: Site, tasks: WaitingTasks, claim: Claim) -> None:
    """Have its turn driven to its end, and its task told."""

    def settled() -> Future[Any]:
        driven: Future[Any] = Future()
        driven.set_result(site.ledger.queue.settle(claim, DONE, site.now(), None))
        return driven

    run: Any = SimpleNamespace(claim=claim, placed=Future())
    tasks.start(run, settled)
    tasks.close(60)
    tasks.give_late(site.now())
    tasks.close(60)


def test_task_that_asks_for_a_turn_while_that_runs_for_a_session_is_told(bench: Bench, site: Site) -> None:
    bench.turn().apply_async()
    (waiter,) = bench.waiters()
    claim = replace(claimed(site, message=None), waiters=())
    request = site.ledger.reports.request("t1")
    assert request is not None
    site.ledger.queue.admit(request, "t1", site.now(), message=waiter.message)
    drive(site, WaitingTasks(bench.executor, site.ledger, site.now), claim)
    site.later += 60
    tasks = WaitingTasks(bench.executor, site.ledger, site.now)
    tasks.give_late(site.now())
    tasks.close(60)
    assert (bench.state("t1"), tasks_of(site.ledger, "t1")) == ("SUCCESS", frozenset())


def test_too_many_ends_at_once_are_told_by_others_at_once(
    bench: Bench, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.tasks.waiting._MOST", 0)
    bench.turn().apply_async()
    (waiter,) = bench.waiters()
    claim = claimed(site, message=waiter.message)
    drive(site, WaitingTasks(bench.executor, site.ledger, site.now), claim)
    assert (bench.state("t1"), tasks_of(site.ledger, "t1")) == ("SUCCESS", frozenset())
