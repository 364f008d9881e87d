"""OpenTelemetry traces: one span per turn, within the trace of its producer.

Enabled when a standard variable names a collector: OTEL_EXPORTER_OTLP_ENDPOINT or
OTEL_EXPORTER_OTLP_TRACES_ENDPOINT. OpenTelemetry's other variables apply, too; the protocol is OTLP over HTTP.
Requires the extra `tracing`.

Several workers may run a turn, and the one that settles it writes its span. The span's ids are therefore derived
from data that all of them have, and every attempt's agent gets the same ones. Spans are sent seconds later from a
thread: an unreachable collector delays nothing, and a worker killed before that loses its spans.

If the operator also instruments Celery, the task's span is a child of the turn's, and the agent's a child of the
task's; without the turn's span, the task's is a child of the producer's. It is one trace either way.
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
    """Writer of turns' spans. Methods return at once; call all but `traceparent` from a single thread."""

    def __init__(self, provider: TracerProvider, ids: _GivenIds) -> None:
        self._provider = provider
        self._ids = ids
        self._tracer = provider.get_tracer("runturn")

    @classmethod
    def of_environment(cls, environ: Mapping[str, str]) -> Self | None:
        """Return tracing if the environment enables it, else None. The exporter reads its own variables there."""
        if not any(environ.get(name) for name in _ENDPOINTS):
            return None
        if environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or environ.get("OTEL_TRACES_EXPORTER") == "none":
            return None
        try:
            provider, ids = _provider()
        except (ImportError, ValueError) as error:
            # An operator may set these variables for a whole fleet: they must not keep a worker from starting.
            log.warning(
                "tracing disabled: correct OpenTelemetry's variables, or pip install 'runturn[tracing]'",
                error=str(error),
            )
            return None
        return cls(provider, ids)

    def traceparent(self, claim: Claim) -> str:
        """Return the turn's span as a `traceparent` (W3C Trace Context)."""
        trace_id, span_id = _ids_of(claim)
        decision = self._provider.sampler.should_sample(_parent(claim), trace_id, _NAME).decision
        return _header(trace_id, span_id, decision.is_sampled())  # type: ignore[no-untyped-call]

    def turn_settled(self, claim: Claim, result: TurnResult, now: float) -> None:
        """Write the turn's span, from its creation to `now`."""
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
        """Send pending spans, waiting at most `within_s` for the collector."""
        closing = threading.Thread(target=self._provider.shutdown, name="tracing-end", daemon=True)
        closing.start()
        closing.join(within_s)


class _GivenIds:
    """OpenTelemetry IdGenerator that returns preset ids."""

    trace_id = 0
    span_id = 0

    def generate_trace_id(self) -> int:
        return self.trace_id

    def generate_span_id(self) -> int:
        return self.span_id

    def is_trace_id_random(self) -> bool:
        return False


def parent_of_task(tracing: Tracing | None, claim: Claim) -> str | None:
    """Return the parent of the task's span. A worker without a collector passes on the request's."""
    return tracing.traceparent(claim) if tracing is not None else claim.request.traceparent


def agent_environment(tracing: Tracing | None, claim: Claim) -> dict[str, str]:
    """Return an agent's trace context: its parent is the span of the turn's task, if there is one.

    Call it in the context of the turn's task.
    """
    told = _current() or parent_of_task(tracing, claim)
    return {} if told is None else {"TRACEPARENT": told}


def traced(request: TurnRequest) -> TurnRequest:
    """Return the request with the sender's span, unless it already names one or there is none."""
    here = _current() if request.traceparent is None else None
    return request if here is None else request.model_copy(update={"traceparent": here})


def _current() -> str | None:
    """Return the current context's span, if any; without OpenTelemetry loaded, there is none."""
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
    """Return the turn's trace and span ids. A removed turn's id may be reused, hence the time."""
    digest = hashlib.sha256(f"{claim.turn_id} {claim.created_at!r} {claim.request.traceparent}".encode()).digest()
    given = claim.request.traceparent
    trace_id = int(given.split("-")[1], 16) if given is not None else int.from_bytes(digest[:16], "big")
    return trace_id or 1, int.from_bytes(digest[16:24], "big") or 1


def _parent(claim: Claim) -> Context:
    """Return the context of the producer's span, if the request names one."""
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
