"""A turn's agents know their place in a trace, and whoever settles the turn writes its one span."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.support.collector import Collector, attributes
from tests.support.fleets.fleet import Fleet, Worker
from tests.support.processes import agents
from tests.support.ssh.ssh_host import ssh_host, ssh_hosts
from tests.support.waiting import until
from workers.app import TASK
from workers.brokers.settings import QUEUE

PRODUCER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
FOR_EVER = {"lines": ["{}", '{"after_ms":600000}']}


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with Collector() as collector:
        yield collector


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, collector: Collector) -> Iterator[tuple[Fleet, Path]]:
    """A fleet with a host over SSH, and the directory of the spools there."""
    root = tmp_path_factory.mktemp("traced")
    with ssh_host("h1", root) as login:
        hosts = ssh_hosts({**login.setting(), "agents": {}})
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(root),
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_BSP_SCHEDULE_DELAY": "100",
        }
        with Fleet(root, environment, ssh_hosts=hosts) as fleet:
            yield fleet, login.spools


def traceparents(spools: Path) -> set[str]:
    """What the agents there were told. One that has signed may have yet to become its program."""
    told = {psutil.Process(pid).environ().get("TRACEPARENT") for pid in agents(spools)}
    return {header for header in told if header}


def span_of(collector: Collector, turn_id: str) -> Span:
    """The one span of a turn."""

    def found() -> list[Span]:
        return [span for span in list(collector.spans) if attributes(span)["runturn.turn_id"] == turn_id]

    until(found, f"the span of {turn_id}")
    (span,) = found()
    return span


def a_worker(crew: Fleet) -> Worker:
    """One that is at work; a new one if need be."""
    for worker in crew.workers:
        if worker.process.poll() is None:
            return worker
    return crew.start_worker()


def told(span: Span) -> str:
    return f"00-{span.trace_id.hex()}-{span.span_id.hex()}-01"


def test_agents_here_and_over_ssh_are_told_the_span_that_another_worker_writes(
    fleet: tuple[Fleet, Path], collector: Collector
) -> None:
    crew, there = fleet
    first = a_worker(crew)
    turns = {
        host: crew.client.enqueue(crew.request(agent="scripted", host=host, options=FOR_EVER))
        for host in ("local", "h1")
    }
    seen = {
        "local": until(lambda: traceparents(crew.state.spool), "the agent here"),
        "h1": until(lambda: traceparents(there), "the agent there"),
    }
    first.terminate()
    first.wait()
    a_worker(crew)
    for turn_id in turns.values():
        crew.client.cancel(turn_id)
    for host, turn_id in turns.items():
        assert crew.result(turn_id).attempts == 1
        span = span_of(collector, turn_id)
        assert {told(span)} == seen[host]
        assert attributes(span)["runturn.host"] == host
        assert attributes(span)["runturn.outcome"] == "turn_cancelled"


OTHER = f"00-{'1' * 32}-{'2' * 16}-01"


@pytest.mark.parametrize(
    ("header", "field", "parent"),
    [(PRODUCER, None, PRODUCER), (OTHER, PRODUCER, PRODUCER), ("nonsense", None, None)],
)
def test_turn_is_a_part_of_its_producers_trace(
    fleet: tuple[Fleet, Path], collector: Collector, header: str, field: str | None, parent: str | None
) -> None:
    crew, _ = fleet
    a_worker(crew)
    request: dict[str, Any] = {"prompt": "do it", "workspace": str(crew.workspace), "agent": "scripted"}
    request |= {"host": "local", "options": {"lines": ["{}"]}} | ({"traceparent": field} if field else {})
    task = crew.client._app.send_task(TASK, args=[request], queue=QUEUE, headers={"traceparent": header})
    until(lambda: crew.ledger.reports.result(task.id), "its result")
    span = span_of(collector, task.id)
    assert attributes(span)["error.type"] == "turn_failed"
    if parent is None:
        assert not span.parent_span_id
    else:
        assert (span.trace_id.hex(), span.parent_span_id.hex()) == tuple(parent.split("-")[1:3])


def test_worker_leaves_in_time_while_the_collector_is_silent(
    fleet: tuple[Fleet, Path], collector: Collector
) -> None:
    crew, _ = fleet
    worker = a_worker(crew)
    collector.answering.clear()
    collector.asked.clear()
    try:
        assert crew.run(crew.request(agent="scripted", host="local", options={"lines": ["{}"]})).attempts == 1
        until(collector.asked.is_set, "the worker to send its span")
        worker.terminate()
        assert worker.wait(30) == 0
        # Nor was Celery kept from its end.
        assert "stopped without waiting any longer for the broker" not in worker.log.read_text()
    finally:
        collector.answering.set()
