"""The gateway: lets requests in, or refuses them in the format of their API."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import aiohttp
import structlog
from aiohttp import web

from adapters.toolkit.wire import Call, Wire
from ops.gateway.exchange import Abandoned, Exchange, refused
from ops.gateway.notes import Denied, Notebook, Opening
from ops.gateway.tokens import Bearer, InvalidToken, TokenSigner

_MODEL = re.compile(rb'"model"\s*:\s*"([^"\\]{1,200})"')
_SHOWN = 200  # characters of a path

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a request."""

    body_bytes: int = 64 * 2**20
    arrival_s: float = 60.0  # seconds until all of it has arrived


class Gateway:
    """Answers requests."""

    def __init__(
        self,
        wires: Mapping[str, Wire],
        signer: TokenSigner,
        notebook: Notebook,
        session: aiohttp.ClientSession,
        clock: Callable[[], float],
        *,
        limits: Limits,
        abandoned: Abandoned,
    ) -> None:
        """`wires`: by the first part of a path, such as `anthropic`. `clock` returns Unix time in seconds."""
        self._wires = wires
        self._signer = signer
        self._notebook = notebook
        self._session = session
        self._clock = clock
        self._limits = limits
        self._abandoned = abandoned
        self._exchanges: set[asyncio.Task[web.StreamResponse]] = set()

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request. If the caller is cancelled, its exchange goes on, until `close`."""
        provider, path, query = _split(request.raw_path)
        wire = self._wires.get(provider)
        if wire is None:
            return web.Response(status=404, text="the gateway has no such API\n")
        try:
            call = _call(wire, request.method, path, query)
            bearer = self._bearer(wire, request)
            body = await self._body(request)
            _check(wire, call, body)
        except _Refused as refusal:
            return refused(wire.refusal(refusal.status, refusal.message))
        model = call.model or _model(body)
        opening = Opening(bearer, provider, model, path, request.remote or "", call.metered)
        exchange = asyncio.create_task(self._exchange(request, wire, call, opening, query, body))
        del body  # the answer may take minutes
        self._exchanges.add(exchange)
        exchange.add_done_callback(self._exchanges.discard)
        try:
            return await asyncio.shield(exchange)
        except Exception as error:
            log.exception("request failed", error=type(error).__name__, turn_id=bearer.turn_id)
            raise

    async def close(self) -> None:
        """Stop all exchanges, and wait until their notes are closed."""
        exchanges = list(self._exchanges)
        for exchange in exchanges:
            exchange.cancel()
        await asyncio.gather(*exchanges, return_exceptions=True)

    async def _exchange(
        self, request: web.BaseRequest, wire: Wire, call: Call, opening: Opening, query: str, body: bytes
    ) -> web.StreamResponse:
        opened = await self._notebook.open(opening)
        if isinstance(opened, Denied):
            return refused(wire.refusal(opened.status, opened.message))
        exchange = Exchange(
            request,
            wire,
            call,
            opening,
            opened,
            session=self._session,
            notebook=self._notebook,
            abandoned=self._abandoned,
        )
        running = exchange.run(opening.path + (f"?{query}" if query else ""), body)
        del body
        return await running

    def _bearer(self, wire: Wire, request: web.BaseRequest) -> Bearer:
        token = wire.credential(request.headers)
        if token is None:
            raise _Refused(401, "the request has no token")
        try:
            return self._signer.verify(token, self._clock())
        except InvalidToken as error:
            raise _Refused(401, str(error)) from None

    async def _body(self, request: web.BaseRequest) -> bytes:
        most = self._limits.body_bytes
        too_long = _Refused(413, f"the request is longer than {most:,} bytes")
        if (request.content_length or 0) > most:
            raise too_long
        body = bytearray()
        try:
            async with asyncio.timeout(self._limits.arrival_s):
                async for chunk in request.content.iter_any():
                    body += chunk
                    if len(body) > most:
                        raise too_long
        except TimeoutError:
            raise _Refused(408, "the request did not arrive in time") from None
        except (ConnectionError, web.RequestPayloadError):
            raise _Refused(400, "the request is broken") from None
        return bytes(body)


class _Refused(Exception):
    """The request is not forwarded."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        self.message = message
        super().__init__(message)


def _call(wire: Wire, method: str, path: str, query: str) -> Call:
    call = wire.call(method, path, query)
    if call is None:
        shown = path.encode("ascii", "backslashreplace").decode()[:_SHOWN]
        raise _Refused(404, f"the gateway does not forward {method} {shown}")
    return call


def _check(wire: Wire, call: Call, body: bytes) -> None:
    objection = wire.objection(body) if call.metered else None
    if objection is not None:
        raise _Refused(400, objection)


def _split(raw_path: str) -> tuple[str, str, str]:
    """Return the first part of a path, the rest of it, and the query, as they were sent."""
    path, _, query = raw_path.partition("?")
    provider, _, rest = path.removeprefix("/").partition("/")
    return provider, f"/{rest}", query


def _model(body: bytes) -> str:
    """Return the model that a request names: a guess, for answers that name none."""
    found = _MODEL.search(body)
    return found[1].decode(errors="replace") if found else ""
