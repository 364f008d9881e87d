"""The API's endpoints: pick the scripted answer, send it, book it while it goes out."""

from __future__ import annotations

import asyncio
import secrets
import socket
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict

from aiohttp import web
from pydantic import ValidationError

from . import messages
from .bill import UNROUTED, Accounts, Bill, Entry
from .gates import Gates
from .routing import SESSION_HEADER, SIDE, MessagesRequest, Route, Router, UnroutableError, newest_prompt
from .script import Answer, Fault, Hold, HttpError, Reply, ScriptBook

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER on, 0 s: close() sends RST instead of FIN
_MAX_BODY_BYTES = 64 * 2**20  # a conversation with images outgrows aiohttp's 1 MiB


class Handlers:
    """Answers requests by the book and keeps the accounts."""

    def __init__(self, book: ScriptBook, accounts: Accounts, gates: Gates) -> None:
        self._router = Router(book)
        self._accounts = accounts
        self._gates = gates
        self._given: Counter[tuple[str, str, str]] = Counter()  # answers given, per script, list, session

    def app(self) -> web.Application:
        """The web application."""
        app = web.Application(client_max_size=_MAX_BODY_BYTES)
        app.router.add_post("/v1/messages", self.create_message)
        app.router.add_post("/v1/messages/count_tokens", self.count_tokens)
        app.router.add_get("/bill", self.show_bill)
        app.router.add_route("HEAD", "/", _ok)
        app.router.add_route("*", "/{path:.*}", _not_found)
        return app

    async def create_message(self, request: web.Request) -> web.StreamResponse:
        """`POST /v1/messages`."""
        try:
            wanted = MessagesRequest.model_validate_json(await request.read())
        except ValidationError as exc:
            return _error_response(HttpError(400, "invalid_request_error", str(exc)))
        answer, entry = self._take(wanted, request.headers)
        try:
            return await self._send(request, wanted, answer, entry)
        except asyncio.CancelledError:
            entry.disconnect()
            raise
        except ConnectionError:
            entry.disconnect()
            return web.Response()  # for aiohttp; nobody is there to read it
        finally:
            entry.close()

    async def count_tokens(self, request: web.Request) -> web.Response:
        """`POST /v1/messages/count_tokens`: four bytes a token is near enough; counting is free."""
        return web.json_response({"input_tokens": len(await request.read()) // 4})

    async def show_bill(self, request: web.Request) -> web.Response:
        """`GET /bill`, or `GET /bill?script=NAME`."""
        name = request.query.get("script")
        bills = self._accounts.bills() if name is None else {name: self._accounts.bill(name)}
        return web.json_response({script: bill_json(bill) for script, bill in bills.items()})

    def _take(self, wanted: MessagesRequest, headers: Mapping[str, str]) -> tuple[Answer, Entry]:
        """The next answer for this request, and its line in the books."""
        prompt, session = newest_prompt(wanted), headers.get(SESSION_HEADER, "")
        try:
            route = self._router.route(wanted, headers)
        except UnroutableError as exc:
            entry = self._accounts.open(UNROUTED, "", wanted.model, prompt, session)
            return HttpError(400, "invalid_request_error", f"model api: {exc}"), entry
        entry = self._accounts.open(route.script.name, route.list_name, wanted.model, prompt, session)
        return self._next_answer(route), entry

    def _next_answer(self, route: Route) -> Answer:
        if route.list_name == SIDE:
            return route.replies[0]
        cursor = (route.script.name, route.list_name, route.session if route.script.per_session else "")
        given = self._given[cursor]
        self._given[cursor] += 1
        if given < len(route.replies):
            return route.replies[given]
        text = (
            f"model api: script {route.script.name!r} has {len(route.replies)} replies in its list "
            f"{route.list_name!r}; this is request {given + 1}"
        )
        return HttpError(400, "invalid_request_error", text)

    async def _send(
        self, request: web.Request, wanted: MessagesRequest, answer: Answer, entry: Entry
    ) -> web.StreamResponse:
        await self._hold(answer.hold, 0)
        if isinstance(answer, HttpError):
            entry.refuse(answer.status)
            return _error_response(answer)
        message_id = f"msg_{secrets.token_hex(12)}"
        if wanted.stream:
            return await self._stream(request, answer, entry, wanted.model, message_id)
        return await _send_whole(request, answer, entry, wanted.model, message_id)

    async def _stream(
        self, request: web.Request, reply: Reply, entry: Entry, model: str, message_id: str
    ) -> web.StreamResponse:
        headers = {"content-type": "text/event-stream", "request-id": _request_id(), **reply.headers}
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        entry.answer()
        for sent, event in enumerate(messages.message_events(reply, model=model, message_id=message_id)):
            if sent:  # the gate at 0 stood before the status line
                await self._hold(reply.hold, sent)
            if reply.fault is not None and sent == reply.fault.after_events:
                return await _break_stream(request, response, reply.fault)
            await asyncio.sleep(reply.delay_s)
            _book(event, reply, entry)
            await response.write(event.encode())
        await response.write_eof()
        return response

    async def _hold(self, hold: Hold | None, sent: int) -> None:
        if hold is not None and hold.after_events == sent:
            await self._gates[hold.gate].wait_until_released()


def bill_json(bill: Bill) -> dict[str, object]:
    """A bill as `GET /bill` shows it."""
    return {
        "requests": len(bill.requests),
        "partial": len(bill.partial),
        "by_model": {model: asdict(usage) for model, usage in bill.by_model.items()},
        "lines": [asdict(request) for request in bill.requests],
    }


def _book(event: messages.Event, reply: Reply, entry: Entry) -> None:
    match event.name:
        case "message_start":
            entry.begin(reply.usage)
        case "message_delta":
            entry.finish_output(reply.usage, messages.stop_reason(reply))
        case "message_stop":
            entry.complete()


async def _send_whole(
    request: web.Request, reply: Reply, entry: Entry, model: str, message_id: str
) -> web.Response:
    await asyncio.sleep(reply.delay_s)
    entry.answer()
    if reply.fault is not None:
        _reset(request)
        return web.Response()  # for aiohttp; the connection is gone
    entry.begin(reply.usage)
    entry.finish_output(reply.usage, messages.stop_reason(reply))
    entry.complete()
    body = messages.whole_message(reply, model=model, message_id=message_id)
    return web.json_response(body, headers={"request-id": _request_id(), **reply.headers})


async def _break_stream(request: web.Request, response: web.StreamResponse, fault: Fault) -> web.StreamResponse:
    match fault.kind:
        case "reset":
            _reset(request)
            return response
        case "error":
            await response.write(messages.error_event(fault.error_type, fault.message).encode())
        case "cut":
            pass
    await response.write_eof()
    return response


def _reset(request: web.Request) -> None:
    transport = request.transport
    if transport is not None:
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        transport.abort()


def _error_response(error: HttpError) -> web.Response:
    headers = {"request-id": _request_id(), **error.headers}
    return web.json_response(messages.http_error_body(error), status=error.status, headers=headers)


def _request_id() -> str:
    return f"req_{secrets.token_hex(12)}"


async def _ok(request: web.Request) -> web.Response:
    return web.Response()


async def _not_found(request: web.Request) -> web.Response:
    """Feature flags, settings, telemetry: clients ask for much and take a 404 for an answer."""
    return _error_response(HttpError(404, "not_found_error", f"model api: no {request.method} {request.path}"))
