"""One span a turn, whoever works on it, in the trace of who asked for it; and nothing waits for a collector."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from opentelemetry.sdk.trace import TracerProvider

from adapters.protocol.request import TurnRequest
from adapters.protocol.result import TurnResult
from ops.ledger import Claim
from ops.redaction import looks_secret
from ops.tracing import Tracing, agent_environment, parent_of_task, traced
from tests.support.collector import Collector, attributes
from tests.support.ledger.accounts import a_failure, a_request, a_result

PRODUCER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60")  # what the tests wait for is no time-out


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with Collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        yield collector


def tracing() -> Tracing:
    found = Tracing.of_environment({"OTEL_EXPORTER_OTLP_ENDPOINT": "as in the environment"})
    assert found is not None
    return found


def claim(traceparent: str | None = None, **fields: Any) -> Claim:
    made = {
        "turn_id": "t1",
        "owner": "w1",
        "epoch": 1,
        "request": a_request(traceparent=traceparent),
        "created_at": 1_000.25,
        "ready_at": None,
        "cancel_requested": False,
        "attempts": (),
    }
    return Claim(**{**made, **fields})


def written(collector: Collector, of: Claim, result: TurnResult) -> Span:
    worker = tracing()
    worker.turn_settled(of, result, 1_060.5)
    worker.close(30.0)
    return collector.spans.pop()


def test_span_tells_what_the_turn_was_and_cost(collector: Collector) -> None:
    span = written(collector, claim(), a_result(cost_usd=0.25, host="build1", session_id="s1", attempts=2))
    assert (span.name, span.kind) == ("runturn.turn", Span.SPAN_KIND_CONSUMER)
    assert (span.start_time_unix_nano, span.end_time_unix_nano) == (1_000_250_000_000, 1_060_500_000_000)
    assert attributes(span) == {
        "runturn.turn_id": "t1",
        "runturn.session_id": "s1",
        "runturn.agent": "claude-code",
        "runturn.producer": "default",
        "runturn.host": "build1",
        "runturn.attempts": 2,
        "runturn.outcome": "completed",
        "runturn.tokens.input": 100,
        "runturn.tokens.output": 20,
        "runturn.tokens.cache_read": 3000,
        "runturn.tokens.cache_creation": 400,
        "runturn.cost_usd": 0.25,
    }
    assert span.status.code == Status.STATUS_CODE_UNSET
    assert collector.services == {"runturn"}


def test_failed_turn_is_an_error_without_what_anybody_said(collector: Collector) -> None:
    span = written(collector, claim(), a_failure(kind="turn_stalled"))
    assert (span.status.code, span.status.message) == (Status.STATUS_CODE_ERROR, "turn_stalled")
    assert attributes(span)["error.type"] == attributes(span)["runturn.outcome"] == "turn_stalled"
    assert "runturn.cost_usd" not in attributes(span)  # not known is not 0


@pytest.mark.parametrize("parent", [None, PRODUCER])
def test_all_workers_tell_all_attempts_the_span_that_is_written(collector: Collector, parent: str | None) -> None:
    first, second = (
        tracing().traceparent(claim(parent, owner=owner, epoch=epoch)) for owner, epoch in (("a", 1), ("b", 2))
    )
    span = written(collector, claim(parent, owner="c", epoch=3), a_result())
    assert first == second == f"00-{span.trace_id.hex()}-{span.span_id.hex()}-01"
    if parent is not None:
        assert (span.trace_id.hex(), span.parent_span_id.hex()) == tuple(parent.split("-")[1:3])
    else:
        assert not span.parent_span_id
    other = tracing().traceparent(claim(parent, created_at=2_000.0))
    assert other != first  # the same id, used anew


def test_producer_that_does_not_sample_has_nothing_written(collector: Collector) -> None:
    unsampled = claim(PRODUCER[:-1] + "0")
    worker = tracing()
    worker.turn_settled(unsampled, a_result(), 1_060.0)
    worker.turn_settled(claim(), a_result("t2"), 1_060.0)
    assert worker.traceparent(unsampled).endswith("-00")
    worker.close(30.0)
    assert len(collector.spans) == 1


def test_standard_variables_hold(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "our-agents")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    worker = tracing()
    worker.turn_settled(claim(), a_result(), 1_060.0)
    assert worker.traceparent(claim()).endswith("-00")
    worker.close(30.0)
    monkeypatch.delenv("OTEL_TRACES_SAMPLER")
    written(collector, claim(), a_result())
    assert (collector.spans, collector.services) == ([], {"our-agents"})


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": ""},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_SDK_DISABLED": "true"},
        {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces", "OTEL_TRACES_EXPORTER": "none"},
    ],
)
def test_without_a_collector_there_are_no_traces(environ: dict[str, str]) -> None:
    assert Tracing.of_environment(environ) is None
    assert agent_environment(None, claim()) == {}
    assert agent_environment(None, claim(PRODUCER)) == {"TRACEPARENT": PRODUCER}  # it goes on to the agent


@pytest.fixture
def span() -> Iterator[str]:
    """The header of the span that this test is in."""
    with TracerProvider().get_tracer("test").start_as_current_span("test") as span:
        context = span.get_span_context()
        yield f"00-{context.trace_id:032x}-{context.span_id:016x}-01"


def test_agent_is_below_the_span_of_its_turns_task_and_that_below_the_turns(
    collector: Collector, span: str
) -> None:
    worker = tracing()
    for of in (claim(), claim(PRODUCER)):
        assert agent_environment(None, of) == agent_environment(worker, of) == {"TRACEPARENT": span}
        assert parent_of_task(None, of) == of.request.traceparent
        assert parent_of_task(worker, of) == worker.traceparent(of)


def test_request_is_in_the_trace_of_who_sends_it_unless_it_names_another_one(span: str) -> None:
    assert traced(a_request()).traceparent == span
    assert traced(a_request(traceparent=PRODUCER)).traceparent == PRODUCER


def test_without_a_span_nothing_is_put_into_a_request() -> None:
    assert traced(a_request()).traceparent is None


def test_without_the_package_the_worker_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    assert Tracing.of_environment({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}) is None


def test_package_is_loaded_only_when_it_is_wanted() -> None:
    loaded = "[name for name in sys.modules if name.startswith('opentelemetry')]"
    program = f"import sys, workers.worker.bootstrap; print(*{loaded})"
    said = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert said.stdout.strip() == ""


@pytest.mark.parametrize("state", ["away", "silent"])
def test_collector_that_does_not_answer_delays_nothing(collector: Collector, state: str) -> None:
    worker = tracing()
    if state == "away":
        collector._server.shutdown()
        collector._server.server_close()
    else:
        collector.answering.clear()
    began = time.monotonic()
    for _ in range(3_000):  # more than it keeps for later
        worker.turn_settled(claim(), a_result(), 1_060.0)
        worker.traceparent(claim())
    assert time.monotonic() - began < 30.0  # well below a millisecond each, and nothing that waits
    began = time.monotonic()
    worker.close(0.5)
    assert time.monotonic() - began < 10.0


def test_login_at_the_collector_is_a_secret() -> None:
    for name in ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"):
        assert looks_secret(name, "authorization=Bearer x")
    assert not looks_secret("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318")


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        (PRODUCER.upper(), "String should match"),
        (PRODUCER + "\n", "String should match"),
        ("ff" + PRODUCER[2:], "String should match"),
        (f"00-{'0' * 32}-00f067aa0ba902b7-01", "all zeros"),
        (f"00-4bf92f3577b34da6a3ce929d0e0e4736-{'0' * 16}-01", "all zeros"),
    ],
)
def test_request_with_a_traceparent_that_is_none_is_refused(value: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        TurnRequest(prompt="x", workspace="/srv", traceparent=value)
