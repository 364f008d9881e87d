"""The scripted Responses API as a server with its own thread and event loop."""

from __future__ import annotations

import asyncio
import re
import secrets
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Mapping
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
_WHOLE = "/compact"  # makes a conversation shorter, and answers in one piece (0.128.0)
_SUMMARIZE = "You are performing a CONTEXT CHECKPOINT COMPACTION"
_MAX_BODY_BYTES = 64 * 2**20


class OpenAiApi:
    """An HTTP server on loopback that plays scripts, found by API key, else by `[script:NAME]` in a user's prompt.

    What asks to make a conversation shorter is beside it, and gets the script's side reply. A session keeps its
    script: a subagent's requests are answered by the script's first branch.
    """

    def __init__(self, *scripts: Script) -> None:
        self._scripts = {script.name: script for script in scripts}
        self._of_key = {script.key: script for script in scripts if script.key}
        self._of_session: dict[str, Script] = {}
        self._accounts = Accounts()
        self._gates = Gates()
        self._given: Counter[tuple[str, str]] = Counter()
        self._port = 0
        self._stop: Callable[[], object] = lambda: None
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="openai-api", daemon=True)

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
            raise TimeoutError("the OpenAI API did not start within 10 s")
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
        app.router.add_post("/v1/responses", self._respond)
        app.router.add_post("/v1/responses/compact", self._respond)
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

    async def _respond(self, request: web.Request) -> web.StreamResponse:
        body: dict[str, Any] = await request.json()
        answer, entry = self._take(body, request.headers, beside=_is_beside(request.path, body))
        try:
            return await self._send(request, answer, entry, compacts=_compacts(body))
        except asyncio.CancelledError:
            entry.disconnect()
            raise
        except ConnectionError:
            entry.disconnect()
            return web.Response()
        finally:
            entry.close()

    def _take(self, body: dict[str, Any], headers: Mapping[str, str], *, beside: bool) -> tuple[Answer, Entry]:
        """The next answer of the newest marker's script, or the session's, and its line in the books."""
        prompts, session = _prompts(body), headers.get("session-id", "")
        newest = prompts[0] if prompts else ""
        named = (name for prompt in prompts for name in _MARKER.findall(prompt) if name in self._scripts)
        key = headers.get("authorization", "").removeprefix("Bearer ")
        script = self._of_key.get(key) or self._scripts.get(next(named, "")) or self._of_session.get(session)
        if script is None:
            entry = self._accounts.open(UNROUTED, "", body["model"], newest, session)
            return HttpError(400, "invalid_request_error", "openai api: no script for this request"), entry
        self._of_session[session] = script
        if beside:
            return script.side_reply, self._accounts.open(script.name, SIDE, body["model"], newest, session)
        branch = script.branches[0] if headers.get("thread-id", session) != session else None
        name, replies = (branch.name, branch.replies) if branch else (MAIN, script.replies)
        entry = self._accounts.open(script.name, name, body["model"], newest, session)
        given = self._given[script.name, name]
        self._given[script.name, name] += 1
        if given < len(replies):
            return replies[given], entry
        text = f"openai api: script {script.name!r} has no reply {given + 1} in {name!r}"
        return HttpError(400, "invalid_request_error", text), entry

    async def _send(
        self, request: web.Request, answer: Answer, entry: Entry, *, compacts: bool
    ) -> web.StreamResponse:
        await self._hold(answer.hold, 0)
        if isinstance(answer, HttpError):
            entry.refuse(answer.status)
            return web.json_response(messages.error_body(answer), status=answer.status, headers=answer.headers)
        if request.path.endswith(_WHOLE):
            entry.begin(answer.usage)
            entry.finish_output(answer.usage, "completed")
            entry.complete()
            return web.json_response(messages.compaction(answer, _new_id()))
        return await self._stream(request, answer, entry, compacts=compacts)

    async def _stream(
        self, request: web.Request, reply: Reply, entry: Entry, *, compacts: bool
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        entry.answer()
        for sent, event in enumerate(messages.events(reply, _new_id(), compacts=compacts)):
            if sent:  # the gate at 0 stood before the status line
                await self._hold(reply.hold, sent)
            if reply.fault is not None and sent == reply.fault.after_events:
                return await _break_stream(request, response, reply.fault)
            await asyncio.sleep(reply.delay_s)
            if sent == 0:
                entry.begin(reply.usage)
            if event["type"] == "response.completed":
                entry.finish_output(reply.usage, "completed")
                entry.complete()
            await response.write(messages.encode(event))
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


def _compacts(body: dict[str, Any]) -> bool:
    """Whether the API itself is asked to make the conversation shorter."""
    return any(item.get("type") == "compaction_trigger" for item in body["input"][-1:])


def _is_beside(path: str, body: dict[str, Any]) -> bool:
    """Whether the API, or the model in Codex's own words, is asked to make the conversation shorter."""
    asked = any(prompt.startswith(_SUMMARIZE) for prompt in _prompts(body)[:1])
    return asked or _compacts(body) or path.endswith(_WHOLE)


def _new_id() -> str:
    return f"resp_{secrets.token_hex(8)}"


def _prompts(body: dict[str, Any]) -> list[str]:
    """What the user wrote, newest first; results of tools are none of it."""
    texts = [
        "\n".join(part["text"] for part in item["content"] if "text" in part)
        for item in body["input"]
        if item.get("type") == "message" and item.get("role") == "user"
    ]
    return [text for text in reversed(texts) if text]
