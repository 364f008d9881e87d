"""One request that was let in: sent on to the API, the answer passed back as it comes, and its cost noted.

No byte of an answer is held back or changed, and neither request nor answer is kept or logged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

import aiohttp
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

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Abandoned:
    """What to do with an answer whose agent has left."""

    drain: bool = True  # read it to its end, which is billed anyway; False: close the connection
    drain_s: float = 900.0  # seconds, at most


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
        self._left = False  # the agent has left
        self._meter: Meter | None = None
        self._decoder: Decoder | None = None
        self._error = bytearray()

    async def run(self, path: str, body: bytes) -> web.StreamResponse:
        """Send the request, pass its answer back, and close its note. `path`: with the query, as it was sent."""
        response: web.StreamResponse | None = None
        ending = Ending.CUT
        sending = self._session.request(
            self._request.method,
            URL(self._opened.base_url + path, encoded=True),
            headers=self._headers(),
            data=body or None,
            allow_redirects=False,
        )
        del body  # the answer may take minutes
        try:
            async with sending as answer:
                self._answer = answer
                response = _like(answer)
                ending = await self._pass_on(answer, response)
        except aiohttp.ClientConnectorError:
            ending = Ending.NOT_SENT
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            log.warning("answer cut off", error=type(error).__name__, turn_id=self._opening.bearer.turn_id)
        finally:
            await self._close(ending)
        if response is None:
            what = "cannot be reached" if ending is Ending.NOT_SENT else "closed the connection"
            return refused(self._wire.refusal(502, f"the gateway's request was not answered: the API {what}"))
        if ending is Ending.CUT and self._request.transport is not None:
            self._request.transport.abort()  # the agent is to see that the rest is missing
        return response

    def _headers(self) -> aiohttp.typedefs.LooseHeaders:
        name = self._wire.credential_headers[0]
        headers = passed_on(self._request.headers, but=("content-length", *self._wire.credential_headers))
        headers["accept-encoding"] = accepted(headers.get("accept-encoding"))
        headers[name] = self._wire.key_header(self._opened.key)
        return headers

    async def _pass_on(self, answer: aiohttp.ClientResponse, response: web.StreamResponse) -> Ending:
        read = self._reader(answer)
        await self._to_agent(response.prepare(self._request))
        async with asyncio.timeout(None) as patience:
            async for chunk in answer.content.iter_any():
                if self._first_byte_s is None:
                    self._first_byte_s = self._clock() - self._began_s
                if not self._left:
                    await self._to_agent(response.write(chunk))
                read(chunk)
                if self._left and not self._abandoned.drain:
                    return Ending.CLOSED
                if self._left and patience.when() is None:
                    patience.reschedule(self._clock() + self._abandoned.drain_s)
        if not self._left:
            await self._to_agent(response.write_eof())
        return Ending.DRAINED if self._left else Ending.ANSWERED

    async def _to_agent(self, sending: Awaitable[object]) -> None:
        try:
            await sending
        except ConnectionError:
            self._left = True

    def _reader(self, answer: aiohttp.ClientResponse) -> Callable[[bytes], object]:
        """Return what reads the answer, beside its agent."""
        if not answer.ok:
            return self._keep_error
        if not self._call.metered:
            return lambda _: None
        self._meter = self._wire.meter(self._opening.model, streamed=answer.content_type == _EVENT_STREAM)
        self._decoder = Decoder(answer.headers.get("content-encoding", ""), self._meter.feed)
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
        refused = self._answer is not None and not self._answer.ok
        return Metered(complete=refused or not self._call.metered or ending is Ending.NOT_SENT)


def refused(refusal: Refusal) -> web.Response:
    """Return an answer of the gateway's own."""
    return web.Response(status=refusal.status, body=refusal.body, content_type="application/json")


def _like(answer: aiohttp.ClientResponse) -> web.StreamResponse:
    return web.StreamResponse(status=answer.status, reason=answer.reason, headers=passed_on(answer.headers))


def _request_id(answer: aiohttp.ClientResponse) -> str:
    headers = answer.headers
    return (headers.get("request-id") or headers.get("x-request-id") or "")[:_LONGEST_ID]
