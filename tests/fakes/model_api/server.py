"""The scripted model API as a server with its own thread and event loop, so that sync tests can drive it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Self

from aiohttp import web

from .bill import Accounts, Bill
from .gates import Gate, Gates
from .handlers import Handlers
from .script import Script, ScriptBook

_HOST = "127.0.0.1"
_START_TIMEOUT_S = 60.0


class ModelApi:
    """An HTTP server on loopback that plays scripts. A context manager; `base_url` is set when it is entered.

    Example:
        with ModelApi(Script("fix", replies=(text("done"),))) as api:
            run_agent(api.base_url)
            assert api.bill("fix").total.output == 5
    """

    def __init__(self, *scripts: Script, port: int = 0) -> None:
        self._accounts = Accounts()
        self._gates = Gates()
        self._handlers = Handlers(ScriptBook(scripts), self._accounts, self._gates)
        self._port = port
        self._stop: Callable[[], object] | None = None  # set by the server's thread once it serves
        self._started = threading.Event()
        self._failure: OSError | None = None
        self._thread = threading.Thread(target=self._run, name="model-api", daemon=True)

    @property
    def base_url(self) -> str:
        """Where clients reach the server: `http://127.0.0.1:PORT`."""
        return f"http://{_HOST}:{self._port}"

    def bill(self, script: str) -> Bill:
        """What the script's requests cost up to now; a message under way counts with what was sent."""
        return self._accounts.bill(script)

    def bills(self) -> dict[str, Bill]:
        """The bills of all scripts that got a request, and of requests that no script claimed."""
        return self._accounts.bills()

    def gate(self, name: str) -> Gate:
        """The gate that a `Hold` names."""
        return self._gates[name]

    def wait_for_requests(self, script: str, count: int, timeout_s: float = 20.0) -> Bill:
        """Block until the script got `count` requests. Raises TimeoutError."""
        return self._accounts.wait_for(
            script, lambda bill: len(bill.requests) >= count, f"{count} requests", timeout_s
        )

    def wait_until_idle(self, script: str, timeout_s: float = 20.0) -> Bill:
        """Block until no request of the script is being answered any more. Raises TimeoutError."""
        return self._accounts.wait_for(
            script,
            lambda bill: not any(request.open for request in bill.requests),
            "end of requests",
            timeout_s,
        )

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._started.wait(_START_TIMEOUT_S):
            raise TimeoutError(f"the model API did not start within {_START_TIMEOUT_S} s")
        if self._failure is not None:
            raise self._failure
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._stop is not None:
            self._stop()
        self._thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except OSError as exc:
            self._failure = exc
        finally:
            self._started.set()

    async def _serve(self) -> None:
        # handler_cancellation: a client that leaves cancels its handler, which books the request as partial.
        # shutdown_timeout 0: a reply that hangs must not hold up the end of a test.
        runner = web.AppRunner(
            self._handlers.app(), handler_cancellation=True, access_log=None, shutdown_timeout=0
        )
        await runner.setup()
        try:
            await web.TCPSite(runner, _HOST, self._port).start()
            self._port = runner.addresses[0][1]
            stopped = asyncio.Event()
            self._stop = partial(asyncio.get_running_loop().call_soon_threadsafe, stopped.set)
            self._started.set()
            await stopped.wait()
        finally:
            await runner.cleanup()
