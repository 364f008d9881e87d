"""OpenTelemetry's instrumentation of Celery, in a worker and in a producer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.instrumentation.celery import CeleryInstrumentor
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from tests.integration.canvas.company import Company
from tests.integration.instruments.company import PROMPT, SECRET, WORDS, CompanyFleet, company_fleet
from tests.support.collector import Collector, attributes
from tests.support.fleets.fleet import slow_recording
from tests.support.places import RECORDINGS
from tests.support.processes import signed
from tests.support.waiting import until

TEST = "tests/integration/instruments/test_opentelemetry.py::test_spans_of_producer_turn_and_agent_are_one_trace"
TASK_SPAN, OURS, SENT = "run/runturn.run_turn", "runturn.turn", "apply_async/runturn.run_turn"
PAUSE_MS = 700


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with Collector() as collector:
        yield collector


@pytest.fixture(scope="module", params=[True, False], ids=["with our spans", "without our spans"])
def ours(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(scope="module")
def fleet(ours: bool, collector: Collector, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CompanyFleet]:
    environment, replaced = {"OTEL_BSP_SCHEDULE_DELAY": "100"}, {"http://127.0.0.1:4318": collector.url}
    if ours:
        environment["OTEL_EXPORTER_OTLP_ENDPOINT"] = collector.url
    else:  # and set up at once
        last = "    CeleryInstrumentor().instrument()\n"
        replaced |= {"@worker_process_init.connect(weak=False)\n": "", last: f"{last}\n\ntrace_tasks()\n"}
    with company_fleet(tmp_path_factory.mktemp("traced"), TEST, replaced, environment) as fleet:
        yield fleet


@contextmanager
def producer(collector: Collector) -> Iterator[str]:
    """Have this process instrumented; yields the header of the span in which turns are sent."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{collector.url}/v1/traces")))
    CeleryInstrumentor().instrument(tracer_provider=provider)
    try:
        with provider.get_tracer("shop").start_as_current_span("checkout") as span:
            context = span.get_span_context()
            yield f"00-{context.trace_id:032x}-{context.span_id:016x}-01"
    finally:
        CeleryInstrumentor().uninstrument()
        provider.shutdown()


def told(span: Span) -> str:
    return f"00-{span.trace_id.hex()}-{span.span_id.hex()}-01"


def spans(collector: Collector, name: str, turn_id: str, count: int = 1) -> list[Span]:
    """The spans of that name that are about the turn, in their order."""
    key = "runturn.turn_id" if name == OURS else "messaging.message.id"

    def found() -> list[Span]:
        return [
            span
            for span in sorted(collector.spans, key=lambda span: span.start_time_unix_nano)
            if span.name == name and attributes(span)[key] == turn_id
        ]

    until(lambda: len(found()) >= count, f"{count} spans {name}")
    assert len(found()) == count
    return found()


def is_below(span: Span, parent: str) -> bool:
    return [span.trace_id.hex(), span.parent_span_id.hex()] == parent.split("-")[1:3]


def test_spans_of_producer_turn_and_agent_are_one_trace(
    fleet: CompanyFleet, collector: Collector, ours: bool
) -> None:
    turn_id = f"seen-{ours}"
    recording = slow_recording(fleet.root / "slow.jsonl", RECORDINGS / "a_parallel_tools.jsonl", PAUSE_MS)
    with producer(collector) as checkout:
        Company(fleet).turn(recording, turn_id).apply_async()
    agent = psutil.Process(signed(fleet.state.spool / f"{turn_id}.1", "agent"))
    header = until(lambda: agent.environ().get("TRACEPARENT"), "the agent's program")
    fleet.result(turn_id)
    (sent,), (task,) = spans(collector, SENT, turn_id), spans(collector, TASK_SPAN, turn_id)
    assert is_below(sent, checkout)
    assert header == told(task)
    if ours:
        (turn,) = spans(collector, OURS, turn_id)
        assert is_below(turn, told(sent))
        assert is_below(task, told(turn))
        assert turn.start_time_unix_nano <= task.start_time_unix_nano
    else:
        assert is_below(task, told(sent))
    pauses = recording.read_text().count("after_ms")
    assert task.end_time_unix_nano - task.start_time_unix_nano >= pauses * PAUSE_MS * 1_000_000
    assert task.status.code == Status.STATUS_CODE_UNSET


def test_client_puts_turns_into_the_trace_of_who_calls_it(
    fleet: CompanyFleet, collector: Collector, ours: bool
) -> None:
    with producer(collector) as checkout:
        turn_id = fleet.run(fleet.recorded(RECORDINGS / "a_parallel_tools.jsonl")).turn_id
    (span,) = spans(collector, OURS if ours else TASK_SPAN, turn_id)
    assert is_below(span, checkout)


def test_failed_turn_is_an_error_with_its_kind_and_nothing_that_was_said(
    fleet: CompanyFleet, collector: Collector, ours: bool
) -> None:
    turn_id = f"failing-{ours}"
    with producer(collector):
        fleet.run(fleet.failing(turn_id))
    first, last = spans(collector, TASK_SPAN, turn_id, 2)
    assert attributes(first)["celery.retry.reason"] == "port_exit"
    assert first.status.code == Status.STATUS_CODE_UNSET
    assert last.status.code == Status.STATUS_CODE_ERROR
    assert last.status.message == f"port_exit ({turn_id})"
    (event,) = last.events
    assert event.name == "exception"
    assert first.trace_id == last.trace_id
    for said in (PROMPT, SECRET, WORDS):
        assert not [span for span in collector.spans if said in str(span)]
