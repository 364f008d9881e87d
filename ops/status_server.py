"""HTTP server for `/metrics`, `/livez` and `/readyz` on one port."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import Any, Self
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer
from wsgiref.types import StartResponse, WSGIEnvironment

from prometheus_client import make_wsgi_app

from ops.errors import PortTaken
from ops.health import Health
from ops.metrics import Registered

_IDLE_S = 10.0  # for a client that sends nothing
_UNAVAILABLE = "503 Service Unavailable"


class StatusServer:
    """Serves on its own thread until closed."""

    def __init__(self, registry: Registered, health: Health, host: str, port: int) -> None:
        """Listen on `port`; 0: any free one. Raises PortTaken."""
        try:
            family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            kind = type("Server", (_Server,), {"address_family": family})
            self._server = kind(address[:2], _Handler)
        except OSError as error:
            raise PortTaken(
                f"cannot serve metrics at {host}:{port}: {error.strerror}; "
                "set RUNTURN_METRICS_PORT to another port, or to 0 for any free one"
            ) from error
        self._server.set_app(_application(registry, health))
        self.port = int(self._server.server_port)
        bracketed = f"[{host}]" if ":" in host else host
        self.url = f"http://{bracketed}:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, name="status", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    block_on_close = False  # a client that hangs must not delay shutdown

    def server_bind(self) -> None:
        # Not WSGIServer's: it queries the name service for this machine's name.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore the error: the client has disconnected."""


class _Handler(WSGIRequestHandler):
    timeout = _IDLE_S

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: requests come every few seconds."""


def _application(
    registry: Registered, health: Health
) -> Callable[[WSGIEnvironment, StartResponse], Iterable[bytes]]:
    metrics = make_wsgi_app(registry)

    def answer(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        match environ["PATH_INFO"]:
            case "/metrics":
                page: Iterable[bytes] = metrics(environ, start)
                return page
            case "/livez":
                return _verdict(start, "live", health.live())
            case "/readyz":
                return _verdict(start, "ready", health.ready())
        start("404 Not Found", [("Content-Type", "text/plain")])
        return [b"not found; try /metrics, /livez or /readyz\n"]

    return answer


def _verdict(start: StartResponse, name: str, reasons: dict[str, str]) -> Iterable[bytes]:
    start(_UNAVAILABLE if reasons else "200 OK", [("Content-Type", "application/json")])
    return [json.dumps({name: not reasons, "reasons": reasons}).encode() + b"\n"]
