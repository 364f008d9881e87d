"""One request that was let in: sent on to the API, the answer passed back as it comes, and its cost noted.

No byte of an answer is held back or changed, and neither request nor answer is kept or logged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

import aiohttp
import orjson
import structlog
from aiohttp import web
from yarl import URL

from adapters.toolkit.metering import Meter, Metered
from adapters.toolkit.wire import Call, Refusal, Wire
from ops.gateway.decoding import Decoder, accepted
from ops.gateway.headers import passed_on
from ops.gateway.notes import Closing, Ending, Notebook, Opened, Opening

_EVENT_STREAM = "text/event-stream"
_ERROR_BYTES = 64 * 2**10  # of an error's body, to see what it says about the account
_LONGEST_ID = 200  # characters
_LOOK_S = 5.0  # between looks at connections on which nothing comes

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Abandoned:
    """What to do with an answer whose agent has left."""

    drain: bool = True  # read it to its end, which is billed anyway; False: close the connection
    drain_s: float = 900.0  # seconds, at most


class _Abandoned(Exception):
    """The agent has left, and its answer is not to be read any further."""


class Exchange:
    """One request, whose note is open."""

    def __init__(
        self,
        request: web.BaseRequest,
        wire: Wire,
        call: Call,
        opening: Opening,
        opened: Opened,
        *,
        session: aiohttp.ClientSession,
        notebook: Notebook,
        abandoned: Abandoned,
    ) -> None:
        self._request = request
        self._wire = wire
        self._call = call
        self._opening = opening
        self._opened = opened
        self._session = session
        self._notebook = notebook
        self._abandoned = abandoned
        self._clock = asyncio.get_running_loop().time
        self._began_s = self._clock()
        self._first_byte_s: float | None = None
        self._answer: aiohttp.ClientResponse | None = None
        self._left_s: float | None = None  # when the agent was seen to have left
        self._meter: Meter | None = None
        self._decoder: Decoder | None = None
        self._error = bytearray()

    async def run(self, path: str, body: bytes) -> web.StreamResponse:
        """Send the request, pass its answer back, and close its note. `path`: with the query, as it was sent."""
        response: web.StreamResponse | None = None
        ending = Ending.CUT
        sending = self._send(path, body)
        del body  # the answer may take minutes
        try:
            answer = self._answer = await self._awaited(sending)
            response = _like(answer)
            await self._pass_on(answer, response)
            ending = Ending.ANSWERED if self._left_s is None else Ending.DRAINED
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
            ending = Ending.NOT_SENT
        except _Abandoned:
            ending = Ending.CLOSED
        except (aiohttp.ClientError, OSError) as error:
            log.warning("answer cut off", error=type(error).__name__, turn_id=self._opening.bearer.turn_id)
        except asyncio.CancelledError:
            ending = Ending.STOPPED
            raise
        finally:
            if self._answer is not None:
                self._answer.close()
            await self._close(ending)
        if response is None:
            what = "cannot be reached" if ending is Ending.NOT_SENT else "closed the connection without answering"
            return refused(self._wire.refusal(502, f"the model's API {what}"))
        if ending is Ending.CUT and self._request.transport is not None:
            self._request.transport.abort()  # the agent is to see that the rest is missing
        return response

    def _send(self, path: str, body: bytes) -> asyncio.Task[aiohttp.ClientResponse]:
        async def sent() -> aiohttp.ClientResponse:
            return await self._session.request(
                self._request.method,
                URL(self._opened.base_url + path, encoded=True),
                headers=self._headers(),
                data=body or None,
                allow_redirects=False,
            )

        return asyncio.create_task(sent())

    def _headers(self) -> aiohttp.typedefs.LooseHeaders:
        name = self._wire.credential_headers[0]
        headers = passed_on(self._request.headers, but=("content-length", *self._wire.credential_headers))
        headers["accept-encoding"] = accepted(headers.get("accept-encoding"))
        headers[name] = self._wire.key_header(self._opened.key)
        return headers

    async def _awaited(self, sending: asyncio.Task[aiohttp.ClientResponse]) -> aiohttp.ClientResponse:
        """Return the answer once its headers are there."""
        try:
            while not (await asyncio.wait((sending,), timeout=_LOOK_S))[0]:
                self._look_for_agent()
            return sending.result()
        finally:
            sending.cancel()

    async def _pass_on(self, answer: aiohttp.ClientResponse, response: web.StreamResponse) -> None:
        read = self._reader(answer)
        await self._to_agent(response.prepare(self._request))
        while chunk := await self._next(answer):
            if self._first_byte_s is None:
                self._first_byte_s = self._clock() - self._began_s
            if self._left_s is None:
                await self._to_agent(response.write(chunk))
            read(chunk)
            self._look_for_agent()
        if self._left_s is None:
            await self._to_agent(response.write_eof())

    async def _next(self, answer: aiohttp.ClientResponse) -> bytes:
        """Return the next bytes; none at the end."""
        while True:
            try:
                async with asyncio.timeout(_LOOK_S):
                    return await answer.content.readany()
            except TimeoutError:
                self._look_for_agent()
                # aiohttp reports a connection that has ended with a broken chunk to nobody.
                if not answer.content.is_eof() and (answer.connection is None or not answer.connection.transport):
                    raise aiohttp.ClientPayloadError("the connection has ended") from None

    async def _to_agent(self, sending: Awaitable[object]) -> None:
        try:
            await sending
        except ConnectionError:
            self._leave()

    def _leave(self) -> None:
        if self._left_s is None:
            self._left_s = self._clock()

    def _look_for_agent(self) -> None:
        """Raise _Abandoned if the agent has left and nothing more is to be read for it."""
        transport = self._request.transport
        if transport is None or transport.is_closing():
            self._leave()
        if self._left_s is None:
            return
        if not self._abandoned.drain or self._clock() - self._left_s > self._abandoned.drain_s:
            raise _Abandoned

    def _reader(self, answer: aiohttp.ClientResponse) -> Callable[[bytes], object]:
        """Return what reads the answer, beside its agent."""
        coding = answer.headers.get("content-encoding", "")
        if not answer.ok:
            return Decoder(coding, self._keep_error).decode
        if not self._call.metered:
            return lambda _: None
        self._meter = self._wire.meter(self._opening.model, streamed=answer.content_type == _EVENT_STREAM)
        self._decoder = Decoder(coding, self._meter.feed)
        return self._decoder.decode

    def _keep_error(self, data: bytes) -> None:
        self._error += data[: _ERROR_BYTES - len(self._error)]

    async def _close(self, ending: Ending) -> None:
        answer = self._answer
        closing = Closing(
            ending,
            answer.status if answer else None,
            _request_id(answer) if answer else "",
            self._metered(ending),
            self._first_byte_s,
        )
        await self._notebook.close(self._opened.note_id, closing)
        if answer is None or answer.ok:
            return
        notice = self._wire.notice(answer.headers, answer.status, bytes(self._error))
        if notice is not None:
            await self._notebook.notice(self._opening.bearer.account, notice)

    def _metered(self, ending: Ending) -> Metered:
        if self._meter is not None and self._decoder is not None:
            metered = self._meter.end()
            return replace(metered, complete=metered.complete and not self._decoder.failed)
        return Metered(complete=not self._call.metered or ending is Ending.NOT_SENT or self._is_refused())

    def _is_refused(self) -> bool:
        """Return whether the API has refused the request, and thus bills nothing.

        A proxy before it may report 502 or 504 while the API goes on.
        """
        if self._answer is None or self._answer.ok:
            return False
        return self._answer.status < 500 or _is_error(bytes(self._error))


def _is_error(body: bytes) -> bool:
    """Return whether this is an error as the APIs report them."""
    try:
        decoded = orjson.loads(body)
    except ValueError:
        return False
    first = decoded[0] if isinstance(decoded, list) and decoded else decoded
    return isinstance(first, dict) and "error" in first


def refused(refusal: Refusal) -> web.Response:
    """Return an answer of the gateway's own."""
    return web.Response(status=refusal.status, body=refusal.body, content_type="application/json")


def _like(answer: aiohttp.ClientResponse) -> web.StreamResponse:
    return web.StreamResponse(status=answer.status, reason=answer.reason, headers=passed_on(answer.headers))


def _request_id(answer: aiohttp.ClientResponse) -> str:
    headers = answer.headers
    return (headers.get("request-id") or headers.get("x-request-id") or "")[:_LONGEST_ID]
