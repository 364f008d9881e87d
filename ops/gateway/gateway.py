"""The gateway: lets requests in, or refuses them in the format of their API."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import aiohttp
from aiohttp import web

from adapters.toolkit.wire import Call, Wire
from ops.gateway.exchange import Abandoned, Exchange, refused
from ops.gateway.notes import Denied, Notebook, Opened, Opening
from ops.gateway.tokens import Bearer, InvalidToken, TokenSigner

_MODEL = re.compile(rb'"model"\s*:\s*"([^"\\]{1,200})"')
_SHOWN = 200  # characters of a path


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

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request."""
        provider, path, query = _split(request.raw_path)
        wire = self._wires.get(provider)
        if wire is None:
            return web.Response(status=404, text="the gateway has no such API\n")
        try:
            call = _call(wire, request.method, path)
            bearer = self._bearer(wire, request)
            body = await self._body(request)
            model = call.model or _model(body)
            opening = Opening(bearer, provider, model, path, request.remote or "", call.metered)
            opened = await self._open(opening)
        except _Refused as refusal:
            return refused(wire.refusal(refusal.status, refusal.message))
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
        return await exchange.run(path + query, body)

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
        return bytes(body)

    async def _open(self, opening: Opening) -> Opened:
        opened = await self._notebook.open(opening)
        if isinstance(opened, Denied):
            raise _Refused(opened.status, opened.message)
        return opened


class _Refused(Exception):
    """The request is not forwarded."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        self.message = message
        super().__init__(message)


def _call(wire: Wire, method: str, path: str) -> Call:
    call = wire.call(method, path)
    if call is None:
        shown = path.encode("ascii", "backslashreplace").decode()[:_SHOWN]
        raise _Refused(404, f"the gateway does not forward {method} {shown}")
    return call


def _split(raw_path: str) -> tuple[str, str, str]:
    """Return the first part of a path, the rest of it, and the query with its question mark, as they were sent."""
    path, mark, query = raw_path.partition("?")
    provider, slash, rest = path.removeprefix("/").partition("/")
    return provider, slash + rest, mark + query


def _model(body: bytes) -> str:
    """Return the model that a request names: a guess, for answers that name none."""
    found = _MODEL.search(body)
    return found[1].decode(errors="replace") if found else ""
