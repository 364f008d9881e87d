"""Traces, for whoever has a collector: one span a turn, and its place in the trace of whoever asked for it.

On when a standard variable names a collector: OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT.
OpenTelemetry's other variables hold, too; it speaks OTLP over HTTP. The package is the extra `tracing`.

A turn may be worked on by several workers, and its span is written by the one that settles it. So its ids are made
from what all of them know, and every attempt's agent is told the same ones. Spans are sent seconds later, from a
thread: a collector that is away delays nothing, and a worker that is killed before that takes its spans along.

Where an operator has Celery instrumented, too, the span of a turn's task is below the turn's, and the agent's
below that; without ours, the task's is below the producer's. So it is one trace with and without ours.
"""

from __future__ import annotations

import hashlib
import sys
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

import structlog

from adapters.protocol.request import TurnRequest
from adapters.protocol.result import TurnResult
from ops.ledger import Claim

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider

_NAME = "runturn.turn"
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")

log = structlog.get_logger(__name__)


class Tracing:
    """Its methods return at once. But for `traceparent`, they may be called from one thread."""

    def __init__(self, provider: TracerProvider, ids: _GivenIds) -> None:
        self._provider = provider
        self._ids = ids
        self._tracer = provider.get_tracer("runturn")

    @classmethod
    def of_environment(cls, environ: Mapping[str, str]) -> Self | None:
        """Traces, if the process's environment wants them; what the exporter needs, it reads there itself."""
        if not any(environ.get(name) for name in _ENDPOINTS):
            return None
        if environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or environ.get("OTEL_TRACES_EXPORTER") == "none":
            return None
        try:
            provider, ids = _provider()
        except (ImportError, ValueError) as error:
            # Whoever runs a fleet may set these variables for all that runs in it: no worker stays away for them.
            log.warning(
                "no traces: correct OpenTelemetry's variables, or pip install 'runturn[tracing]'", error=str(error)
            )
            return None
        return cls(provider, ids)

    def traceparent(self, claim: Claim) -> str:
        """The turn's span, as W3C's Trace Context has it."""
        trace_id, span_id = _ids_of(claim)
        decision = self._provider.sampler.should_sample(_parent(claim), trace_id, _NAME).decision
        return _header(trace_id, span_id, decision.is_sampled())  # type: ignore[no-untyped-call]

    def turn_settled(self, claim: Claim, result: TurnResult, now: float) -> None:
        """Write the turn's span, from its creation till `now`."""
        from opentelemetry.trace import SpanKind, Status, StatusCode  # noqa: PLC0415  # an extra

        self._ids.trace_id, self._ids.span_id = _ids_of(claim)
        span = self._tracer.start_span(
            _NAME,
            context=_parent(claim),
            kind=SpanKind.CONSUMER,
            attributes=_attributes(claim, result),
            start_time=_nanoseconds(claim.created_at),
        )
        if result.error is not None:
            span.set_attribute("error.type", result.error.kind)
            span.set_status(Status(StatusCode.ERROR, result.error.kind))
        span.end(_nanoseconds(now))

    def close(self, within_s: float) -> None:
        """Send what is waiting; a collector that does not answer is not waited for any longer."""
        closing = threading.Thread(target=self._provider.shutdown, name="tracing-end", daemon=True)
        closing.start()
        closing.join(within_s)


class _GivenIds:
    """An IdGenerator of OpenTelemetry's that gives what it was given."""

    trace_id = 0
    span_id = 0

    def generate_trace_id(self) -> int:
        return self.trace_id

    def generate_span_id(self) -> int:
        return self.span_id

    def is_trace_id_random(self) -> bool:
        return False


def parent_of_task(tracing: Tracing | None, claim: Claim) -> str | None:
    """The span above that of the turn's task. A worker without a collector passes on what it was told."""
    return tracing.traceparent(claim) if tracing is not None else claim.request.traceparent


def agent_environment(tracing: Tracing | None, claim: Claim) -> dict[str, str]:
    """What an agent is told of its place in a trace: below the span of its turn's task, if there is one.

    To be called where the turn is worked on: that is in the context of its task.
    """
    told = _current() or parent_of_task(tracing, claim)
    return {} if told is None else {"TRACEPARENT": told}


def traced(request: TurnRequest) -> TurnRequest:
    """A request with the span of who sends it, unless it names another one, or there is none."""
    here = _current() if request.traceparent is None else None
    return request if here is None else request.model_copy(update={"traceparent": here})


def _current() -> str | None:
    """The span of the current context. There is none unless somebody has loaded OpenTelemetry."""
    api = sys.modules.get("opentelemetry.trace")
    if api is None:
        return None
    span = api.get_current_span().get_span_context()
    return _header(span.trace_id, span.span_id, span.trace_flags.sampled) if span.is_valid else None


def _header(trace_id: int, span_id: int, sampled: bool) -> str:
    return f"00-{trace_id:032x}-{span_id:016x}-{sampled:02x}"


def _provider() -> tuple[TracerProvider, _GivenIds]:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    resource = Resource.create()
    if str(resource.attributes.get(SERVICE_NAME, "unknown_service")).startswith("unknown_service"):
        resource = resource.merge(Resource({SERVICE_NAME: "runturn"}))
    ids = _GivenIds()
    provider = TracerProvider(resource=resource, id_generator=ids, shutdown_on_exit=False)  # type: ignore[arg-type]
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider, ids


def _ids_of(claim: Claim) -> tuple[int, int]:
    """The turn's trace and span. An id may be used anew once its turn is forgotten, hence the time."""
    digest = hashlib.sha256(f"{claim.turn_id} {claim.created_at!r} {claim.request.traceparent}".encode()).digest()
    given = claim.request.traceparent
    trace_id = int(given.split("-")[1], 16) if given is not None else int.from_bytes(digest[:16], "big")
    return trace_id or 1, int.from_bytes(digest[16:24], "big") or 1


def _parent(claim: Claim) -> Context:
    """The span of the producer, if it has told one."""
    from opentelemetry.context import Context  # noqa: PLC0415
    from opentelemetry.trace import (  # noqa: PLC0415
        NonRecordingSpan,
        SpanContext,
        TraceFlags,
        set_span_in_context,
    )

    if claim.request.traceparent is None:
        return Context()
    _, trace_id, span_id, flags = claim.request.traceparent.split("-")
    producer = SpanContext(
        int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=TraceFlags(int(flags, 16))
    )
    return set_span_in_context(NonRecordingSpan(producer), Context())


def _attributes(claim: Claim, result: TurnResult) -> dict[str, str | int | float]:
    used = result.usage
    told = {
        "runturn.turn_id": result.turn_id,
        "runturn.session_id": result.session_id,
        "runturn.agent": claim.request.agent,
        "runturn.producer": claim.request.producer,
        "runturn.host": result.host,
        "runturn.attempts": result.attempts,
        "runturn.outcome": result.error.kind if result.error else str(result.status),
        "runturn.tokens.input": used.input_tokens,
        "runturn.tokens.output": used.output_tokens,
        "runturn.tokens.cache_read": used.cache_read_input_tokens,
        "runturn.tokens.cache_creation": used.cache_creation_input_tokens,
        "runturn.cost_usd": result.cost_usd,
    }
    return {name: value for name, value in told.items() if value is not None}


def _nanoseconds(time: float) -> int:
    return int(time * 1e9)
