"""A Sentry on loopback that keeps all that it is sent."""

from __future__ import annotations

import gzip
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class SentryServer:
    """Takes envelopes, as sentry-sdk sends them."""

    def __init__(self) -> None:
        self.items: list[tuple[str, dict[str, Any]]] = []  # type and payload
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                server._take(gzip.decompress(body) if self.headers["Content-Encoding"] == "gzip" else body)
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def dsn(self) -> str:
        """Where clients send to."""
        return f"http://key@127.0.0.1:{self._server.server_port}/1"

    @property
    def events(self) -> list[dict[str, Any]]:
        """The errors among it."""
        return [payload for kind, payload in self.items if kind == "event"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _take(self, envelope: bytes) -> None:
        _, _, rest = envelope.partition(b"\n")
        while rest.strip():
            head, _, rest = rest.partition(b"\n")
            told = json.loads(head)
            length = told.get("length", rest.find(b"\n"))
            self.items.append((told["type"], json.loads(rest[:length])))
            rest = rest[length + 1 :]
