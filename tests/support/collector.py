"""A trace collector on loopback that accepts OTLP over HTTP, like an OpenTelemetry collector."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Collector:
    """A collector that keeps all spans sent to it. While `answering` is not set, senders wait."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.services: set[str] = set()
        self.answering = threading.Event()
        self.answering.set()
        self.asked = threading.Event()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                assert self.path == "/v1/traces"
                collector.asked.set()
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.answering.wait(60)
                collector._take(ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        """Return the value for OTEL_EXPORTER_OTLP_ENDPOINT."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.answering.set()
        self._server.shutdown()
        self._server.server_close()

    def _take(self, request: ExportTraceServiceRequest) -> None:
        for resource in request.resource_spans:
            self.services |= {
                attribute.value.string_value
                for attribute in resource.resource.attributes
                if attribute.key == "service.name"
            }
            self.spans += [span for scope in resource.scope_spans for span in scope.spans]


def attributes(span: Span) -> dict[str, str | int | float]:
    """Return a span's attributes as they were set."""
    return {
        attribute.key: getattr(attribute.value, str(attribute.value.WhichOneof("value")))
        for attribute in span.attributes
    }
