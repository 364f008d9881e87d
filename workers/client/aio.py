"""The producer's client for asyncio: it never blocks the loop, and waiting occupies no thread."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any, ParamSpec, Self, TypeVar

from celery import Celery

from adapters.live import ControlRequest, Verdict
from adapters.markdown import Transcript
from adapters.protocol.request import TurnRequest
from adapters.protocol.result import TurnResult
from adapters.protocol.session_request import SessionRequest
from adapters.protocol.session_result import SessionResult
from adapters.protocol.session_run import turn_id as turn_of
from ops.errors import UnknownTurn
from ops.ledger import Ledger
from workers.client.control import TIMEOUT_S, TurnControl, message
from workers.client.sync import Client
from workers.client.waiting import ResultWaiter
from workers.errors import ResultTimeout
from workers.events.bus import Batch
from workers.events.follow import POLL_S, Reader, is_last
from workers.events.subscriber import Subscriber
from workers.live.messages import Said

_MOST_WAITING = 1_000  # batches buffered for a slow reader of a turn; the ledger has any that are dropped
_THREADS = 4

P = ParamSpec("P")
T = TypeVar("T")


class AsyncClient:
    """`Client` for one event loop: use it as an async context manager, and share it between tasks.

    It raises the same errors as `workers.client.sync.Client`, as described there. One connection carries the
    events of all turns waited for, and one query a second asks for all their results.
    """

    def __init__(self, app: Celery, ledger: Ledger) -> None:
        self._app = app
        self._client = Client(app, ledger)
        self._ledger = ledger
        self._feed = Subscriber(app.conf.broker_url)
        # A hung broker must not block calls to the ledger.
        self._sending = ThreadPoolExecutor(_THREADS, "runturn-broker")
        self._asking = ThreadPoolExecutor(_THREADS, "runturn-ledger")
        # Nor may messages that wait for a worker to take over a turn block enqueueing.
        self._saying = ThreadPoolExecutor(_THREADS, "runturn-saying")
        self._settlements = ResultWaiter(lambda turn_ids: self._ask(ledger.queue.settled, turn_ids))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Cancel all pending waits (CancelledError) and stop all threads."""
        self._settlements.close()
        await asyncio.to_thread(self._shut_down)

    def _shut_down(self) -> None:
        self._feed.close()
        for pool in (self._sending, self._saying):
            pool.shutdown(wait=False)  # the broker may hang
        self._asking.shutdown()

    async def enqueue(self, request: TurnRequest) -> str:
        """Queue a turn; return its id. Raises BrokerUnavailable."""
        return await self._send(self._client.enqueue, request)

    async def enqueue_many(self, requests: Iterable[TurnRequest]) -> list[str]:
        """Queue turns over one connection; return their ids. Raises BrokerUnavailable: call again with all."""
        return await self._send(self._client.enqueue_many, list(requests))

    async def result(self, turn_id: str, timeout_s: float | None = None) -> TurnResult:
        """Wait for a turn's result. Raises ResultTimeout; the turn keeps running."""
        loop = asyncio.get_running_loop()

        def take(batch: Batch) -> None:
            if is_last(batch):
                _on_loop(loop, self._settlements.look)

        try:
            with self._feed.listening(turn_id, take):
                async with asyncio.timeout(timeout_s):
                    await self._settlements.of(turn_id)
                    result = await self._ask(self._ledger.reports.result, turn_id)
        except TimeoutError as error:
            raise ResultTimeout(
                f"turn {turn_id} did not finish within {timeout_s} s; it is still running"
            ) from error
        assert result is not None  # noqa: S101  # it is settled
        return result

    async def events(self, turn_id: str, after: int = 0) -> AsyncGenerator[dict[str, Any], None]:
        """Yield a turn's events from number `after` + 1 on, live and without gaps, until it is settled.

        Close the generator (`contextlib.aclosing`) if you stop before its end.
        """
        live = _Live(asyncio.get_running_loop())
        with self._feed.listening(turn_id, live.take):
            async with contextlib.aclosing(self._follow(live, turn_id, after)) as events:
                async for event in events:
                    yield event

    async def transcript(self, turn_id: str) -> AsyncGenerator[str, None]:
        """Yield a turn or session of turns as Markdown, a text for each event that has one, until it ends."""
        session = await self._ask(self._ledger.session_runs.find, turn_id)
        async for each in _only(turn_id) if session is None else self.session_turns(turn_id):
            transcript = Transcript()
            async with contextlib.aclosing(self.events(each)) as events:
                async for event in events:
                    if text := transcript.text(event):
                        yield text

    async def session_turns(self, run_id: str) -> AsyncGenerator[str, None]:
        """Yield the ids of a session's turns from the first one on, each once it is queued, until the end."""
        number = 1
        while (session := await self._ask(self._ledger.session_runs.find, run_id)) is not None:
            last = session.number
            for each in range(number, last + 1):
                yield turn_of(run_id, each)
            number = last + 1
            if session.result is not None:
                return
            await self.result(session.turn or "")
        raise UnknownTurn(run_id)

    async def enqueue_session(self, request: SessionRequest) -> str:
        """Queue a session of turns; return its id. Raises BrokerUnavailable."""
        return await self._send(self._client.enqueue_session, request)

    async def session_result(self, run_id: str, timeout_s: float | None = None) -> SessionResult:
        """Wait for the result of a session of turns. Raises UnknownTurn, and ResultTimeout; it keeps running."""
        try:
            async with asyncio.timeout(timeout_s):
                while (session := await self._ask(self._ledger.session_runs.find, run_id)) is not None:
                    if session.result is not None:
                        return session.result
                    await self.result(session.turn or "")
        except TimeoutError as error:
            raise ResultTimeout(
                f"session of turns {run_id} did not finish within {timeout_s} s; it is still running"
            ) from error
        raise UnknownTurn(run_id)

    async def run_session(self, request: SessionRequest, timeout_s: float | None = None) -> SessionResult:
        """Queue a session of turns and wait for its result. Raises BrokerUnavailable, ResultTimeout."""
        return await self.session_result(await self.enqueue_session(request), timeout_s)

    async def cancel(self, turn_id: str) -> bool:
        """Cancel a turn or a session of turns; return whether there was anything left to cancel.

        Raises UnknownTurn.
        """
        return await self._ask(self._client.cancel, turn_id)

    async def control(
        self,
        turn_id: str,
        request: ControlRequest,
        *,
        request_id: str | None = None,
        by: str | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> dict[str, Any]:
        """Send a control request to a turn's running agent; return its answer. See `Client.control`."""
        expires_at = await self._ask(self._ledger.clock.read) + timeout_s
        return await self._say(message(turn_id, request, request_id, by, expires_at))

    async def answer(
        self,
        turn_id: str,
        request_id: str,
        verdict: Verdict,
        *,
        by: str | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> dict[str, Any]:
        """Answer an agent's question (event `permission_requested`). See `Client.answer`."""
        expires_at = await self._ask(self._ledger.clock.read) + timeout_s
        return await self._say(message(turn_id, verdict, request_id, by, expires_at))

    async def _say(self, said: Said) -> dict[str, Any]:
        saying = TurnControl(self._app, self._ledger, said)
        live = _Live(asyncio.get_running_loop())
        with self._feed.listening(said.turn_id, live.take):
            if not await asyncio.get_running_loop().run_in_executor(self._saying, saying.say):
                with contextlib.suppress(TimeoutError):
                    async with (
                        asyncio.timeout(saying.wait_s),
                        contextlib.aclosing(self._follow(live, said.turn_id, saying.seen)) as events,
                    ):
                        async for event in events:
                            if saying.heard(event):
                                break
        return saying.answer()

    async def _follow(self, live: _Live, turn_id: str, after: int) -> AsyncGenerator[dict[str, Any], None]:
        reader = Reader(self._ledger, turn_id, after)
        while True:
            settled = await self._ask(self._ledger.queue.settled, (turn_id,))
            for event in await self._ask(reader.stored):
                yield event
            if settled:
                return
            while batches := await live.batches(POLL_S):
                for event in reader.live(batches):
                    yield event
                if reader.lags(batches):
                    break

    async def _send(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        here = partial(copy_context().run, call, *args, **kwargs)  # in the sender's trace
        return await asyncio.get_running_loop().run_in_executor(self._sending, here)

    async def _ask(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._asking, partial(call, *args, **kwargs))


async def _only(turn_id: str) -> AsyncGenerator[str, None]:
    yield turn_id


def _on_loop(loop: asyncio.AbstractEventLoop, call: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed: nothing waits any more
        loop.call_soon_threadsafe(partial(call, *args, **kwargs))


class _Live:
    """Events of one turn, handed from the feed's thread to the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queue: asyncio.Queue[Batch] = asyncio.Queue(_MOST_WAITING)

    def take(self, batch: Batch) -> None:
        _on_loop(self._loop, self._receive, batch)

    def _receive(self, batch: Batch) -> None:
        with contextlib.suppress(asyncio.QueueFull):
            self._queue.put_nowait(batch)

    async def batches(self, timeout_s: float) -> list[Batch]:
        """Return what arrives within `timeout_s`; empty if nothing does."""
        try:
            batches = [await asyncio.wait_for(self._queue.get(), timeout_s)]
        except TimeoutError:
            return []
        while not self._queue.empty():
            batches.append(self._queue.get_nowait())
        return batches
