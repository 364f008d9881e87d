"""The scripted Gemini API as a server with its own thread and event loop."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from tests.fakes.model_api.bill import UNROUTED, Accounts, Bill, Entry
from tests.fakes.model_api.gates import Gate, Gates
from tests.fakes.model_api.routing import MAIN, SIDE
from tests.fakes.model_api.script import Answer, Fault, Hold, HttpError, Reply, Script

from . import messages

_MARKER = re.compile(r"\[script:([\w.-]+)\]")
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER on, 0 s: close() sends RST instead of FIN
_MAX_BODY_BYTES = 64 * 2**20


class GeminiApi:
    """An HTTP server on loopback that plays scripts, found by API key, else by `[script:NAME]` in a user's prompt.

    What is not streamed is asked beside the conversation, and gets the script's side reply. Cached tokens are a
    script's `cache_read`; its `output` holds the thoughts. Nothing is written to the cache.
    """

    def __init__(self, *scripts: Script) -> None:
        self._scripts = {script.name: script for script in scripts}
        self._of_key = {script.key: script for script in scripts if script.key}
        self._accounts = Accounts()
        self._gates = Gates()
        self._given: Counter[str] = Counter()
        self._port = 0
        self._stop: Callable[[], object] = lambda: None
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="gemini-api", daemon=True)

    @property
    def base_url(self) -> str:
        """Where clients reach the server."""
        return f"http://127.0.0.1:{self._port}"

    def bill(self, script: str) -> Bill:
        """What the script's requests cost up to now; an answer under way counts with what was sent."""
        return self._accounts.bill(script)

    def bills(self) -> dict[str, Bill]:
        """All of them, and that of requests that no script claimed."""
        return self._accounts.bills()

    def gate(self, name: str) -> Gate:
        """The gate that a `Hold` names."""
        return self._gates[name]

    def wait_for_requests(self, script: str, count: int, timeout_s: float = 30.0) -> Bill:
        """Block until the script got `count` requests. Raises TimeoutError."""
        return self._accounts.wait_for(
            script, lambda bill: len(bill.requests) >= count, f"{count} requests", timeout_s
        )

    def wait_until_idle(self, script: str, timeout_s: float = 30.0) -> Bill:
        """Block until no request of the script is being answered any more. Raises TimeoutError."""
        return self._accounts.wait_for(
            script, lambda bill: not any(line.open for line in bill.requests), "end of requests", timeout_s
        )

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._started.wait(60.0):
            raise TimeoutError("the Gemini API did not start within 10 s")
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop()
        self._thread.join()

    async def _serve(self) -> None:
        app = web.Application(client_max_size=_MAX_BODY_BYTES)
        app.router.add_post("/v1beta/models/{call}", self._generate)
        # handler_cancellation: a client that leaves cancels its handler, which books the request as partial.
        runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self._port = runner.addresses[0][1]
            stopped = asyncio.Event()
            self._stop = partial(asyncio.get_running_loop().call_soon_threadsafe, stopped.set)
            self._started.set()
            await stopped.wait()
        finally:
            await runner.cleanup()

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        model, _, method = request.match_info["call"].partition(":")
        body: dict[str, Any] = await request.json()
        if method == "countTokens":
            return web.json_response({"totalTokens": len(json.dumps(body)) // 4})
        stream = method == "streamGenerateContent"
        answer, entry = self._take(
            request.headers.get("x-goog-api-key", ""), model, _prompts(body), beside=not stream
        )
        try:
            return await self._send(request, model, answer, entry, stream=stream)
        except asyncio.CancelledError:
            entry.disconnect()
            raise
        except ConnectionError:
            entry.disconnect()
            return web.Response()
        finally:
            entry.close()

    def _take(self, key: str, model: str, prompts: list[str], *, beside: bool) -> tuple[Answer, Entry]:
        """The next answer of the script that the key or the newest marker names, and its line in the books."""
        newest = prompts[0] if prompts else ""
        named = (name for prompt in prompts for name in _MARKER.findall(prompt) if name in self._scripts)
        script = self._of_key.get(key) or self._scripts.get(next(named, ""))
        if script is None:
            entry = self._accounts.open(UNROUTED, "", model, newest, "")
            return HttpError(400, "INVALID_ARGUMENT", "gemini api: no script for this request"), entry
        if beside:
            return script.side_reply, self._accounts.open(script.name, SIDE, model, newest, "")
        entry = self._accounts.open(script.name, MAIN, model, newest, "")
        given = self._given[script.name]
        self._given[script.name] += 1
        if given < len(script.replies):
            return script.replies[given], entry
        text = f"gemini api: script {script.name!r} has no reply {given + 1}"
        return HttpError(400, "INVALID_ARGUMENT", text), entry

    async def _send(
        self, request: web.Request, model: str, answer: Answer, entry: Entry, *, stream: bool
    ) -> web.StreamResponse:
        await self._hold(answer.hold, 0)
        if isinstance(answer, HttpError):
            entry.refuse(answer.status)
            return web.json_response(messages.error_body(answer), status=answer.status)
        if stream:
            return await self._stream(request, model, answer, entry)
        entry.begin(answer.usage)
        entry.finish_output(answer.usage, "STOP")
        entry.complete()
        return web.json_response(messages.whole(answer, model))

    async def _stream(self, request: web.Request, model: str, reply: Reply, entry: Entry) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        entry.answer()
        events = list(messages.chunks(reply, model))
        for sent, chunk in enumerate(events):
            if sent:  # the gate at 0 stood before the status line
                await self._hold(reply.hold, sent)
            if reply.fault is not None and sent == reply.fault.after_events:
                return await _break_stream(request, response, reply.fault)
            await asyncio.sleep(reply.delay_s)
            if sent == 0:
                entry.begin(reply.usage)
            if sent == len(events) - 1:
                entry.finish_output(reply.usage, "STOP")
                entry.complete()
            await response.write(b"data: " + json.dumps(chunk).encode() + b"\r\n\r\n")
        await response.write_eof()
        return response

    async def _hold(self, hold: Hold | None, sent: int) -> None:
        if hold is not None and hold.after_events == sent:
            await self._gates[hold.gate].wait_until_released()


async def _break_stream(request: web.Request, response: web.StreamResponse, fault: Fault) -> web.StreamResponse:
    if fault.kind == "cut":
        await response.write_eof()
    elif request.transport is not None:
        connection = request.transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        request.transport.abort()
    return response


def _prompts(body: dict[str, Any]) -> list[str]:
    """What the user wrote, newest first; results of tools are none of it."""
    texts = [
        "\n".join(part["text"] for part in content.get("parts", ()) if "text" in part)
        for content in body.get("contents", ())
        if content.get("role") == "user"
    ]
    return [text for text in reversed(texts) if text]
