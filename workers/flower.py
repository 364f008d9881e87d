"""Flower, configured for runturn: everything behind one login, histogram buckets for long turns, nothing on disk.

Flower is an extra (`runturn[flower]`). It sees only Celery's events: at most the first words of a prompt, and no
answer (see `workers.redacted_request`). Its login can start and terminate turns, and stop workers.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hmac
import os
import secrets
import signal
import tempfile
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, Final

import structlog
from celery import Celery
from flower.app import Flower
from flower.events import Events
from flower.options import default_options
from flower.urls import settings
from tornado.httputil import HTTPServerRequest
from tornado.ioloop import IOLoop
from tornado.web import RequestHandler

from ops.errors import PortTaken, SettingsError
from ops.metrics import TURN_BUCKETS_S
from workers.brokers import redis_transport

USER: Final = "runturn"

_TASKS, _WORKERS = 10_000, 1_000  # kept in memory
_GONE_S = 3600  # offline workers are dropped after this; a new worker has a new name

log = structlog.get_logger(__name__)


class Refusal(RequestHandler):
    """Response to a request without a login."""

    def check_xsrf_cookie(self) -> None:
        """Skip the check: the request is refused anyway."""

    def prepare(self) -> Awaitable[None] | None:
        """Answer any request with 401."""
        self.set_status(401)
        self.set_header("WWW-Authenticate", 'Basic realm="runturn", charset="UTF-8"')
        self.finish("log in\n")
        return None


class GatedFlower(Flower):  # type: ignore[misc]  # Flower has no types
    """Flower with everything behind the login, including its metrics, health check and static files."""

    def __init__(self, password: str, **arguments: Any) -> None:
        self._login = f"{USER}:{password}".encode()
        super().__init__(**arguments)

    def find_handler(self, request: HTTPServerRequest, **arguments: Any) -> Any:
        """Return the handler of a request; without the login, one that refuses it."""
        if not self._admits(request.headers.get("Authorization", "")):
            return self.get_handler_delegate(request, Refusal)
        return super().find_handler(request, **arguments)

    def _admits(self, header: str) -> bool:
        scheme, _, given = header.partition(" ")
        try:
            login = base64.b64decode(given.strip(), validate=True)
        except (binascii.Error, ValueError):
            return False
        return scheme.lower() == "basic" and hmac.compare_digest(login, self._login)


class WorkersEvents(Events):  # type: ignore[misc]  # as above
    """Celery's events without the arguments that producers send: those contain a turn's whole request."""

    def on_event(self, event: dict[str, Any]) -> None:
        """Process an event."""
        if event["type"] == "task-sent":
            event = {name: value for name, value in event.items() if name not in ("args", "kwargs")}
        super().on_event(event)


def read_password(file: Path, *, make: bool) -> str:
    """Return the password in a file; if `make`, create a missing file for its owner only. Raise SettingsError."""
    try:
        if make and not file.exists():
            _make_password(file)
        password = file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"cannot be read: {error}", field="password-file", where=str(file)) from None
    if not password:
        raise SettingsError("is empty; write a password to it", field="password-file", where=str(file))
    return password


def _make_password(file: Path) -> None:
    """Create the file with a new password, atomically, unless another process was faster. Raise OSError."""
    descriptor, draft = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)  # with mode 0600
    try:
        with os.fdopen(descriptor, "w") as new:
            new.write(f"{secrets.token_urlsafe(24)}\n")
        with contextlib.suppress(FileExistsError):
            os.link(draft, file)
    finally:
        Path(draft).unlink()


def serve(app: Celery, address: str, port: int, password: str) -> None:
    """Serve Flower until SIGTERM or SIGINT. Raise PortTaken if it cannot listen."""
    redis_transport.install()  # a killed Flower would stay in the broker's table of bindings
    _configure(password)
    loop = IOLoop.current()
    events = WorkersEvents(
        app, loop, enable_events=False, max_workers_in_memory=_WORKERS, max_tasks_in_memory=_TASKS
    )
    flower = GatedFlower(password, capp=app, options=default_options, events=events, io_loop=loop, **settings)
    default_options.address, default_options.port = address, port
    try:
        taken = flower.start_http_server()
    except OSError as error:
        raise PortTaken(f"Flower cannot listen on {address}:{port}: {error.strerror}; set --port") from error
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: loop.add_callback_from_signal(loop.stop))
    log.info("flower is ready", url=f"http://{address}:{taken}", user=USER)
    flower.start()
    flower.stop()


def _configure(password: str) -> None:
    """Set Flower's options directly: argv and the environment would expose the password."""
    options = default_options
    options.basic_auth = [f"{USER}:{password}"]  # without it, the API refuses every request
    options.task_runtime_metric_buckets = [float(bound) for bound in TURN_BUCKETS_S]  # Flower's end at 10 s
    options.tasks_columns = "name,uuid,state,args,result,received,runtime,worker"
    options.purge_offline_workers = _GONE_S
