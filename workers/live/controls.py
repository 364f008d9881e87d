"""Producers' requests to one attempt's running agent.

Each request is recorded in the ledger before it is carried out, so a worker that takes over never repeats it: if
no outcome is recorded, it answers that the worker was lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Any

import structlog

from adapters.errors import TurnError
from adapters.live import Control, ControlRequest, Conversation
from ops.errors import StaleClaim
from workers.events.model import ControlAnswered, ControlRequested, own_fields
from workers.events.recorder import EventRecorder
from workers.ledger_calls import WorkerStopping
from workers.live.messages import Reply, Said

LOST = "worker_lost"
ENDED = "turn_ended"
TIMED_OUT = "timeout"

log = structlog.get_logger(__name__)


class Controls:
    """Requests to one attempt's agent. Use on the loop that runs the turn, except for `reply`."""

    def __init__(self, recorder: EventRecorder, clock: Callable[[], float]) -> None:
        self._recorder = recorder
        self._clock = clock
        self._conversation: asyncio.Future[Conversation] | None = None
        self._recording = asyncio.Lock()  # one at a time, in order of arrival
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._controls: dict[str, str] = {}  # requested so far, by id
        self._outcomes: dict[str, Mapping[str, Any]] = {}
        self._closed = False

    def reply(self, said: Said) -> Reply:
        """Return the immediate reply to a producer. May be called from any thread."""
        if (outcome := self._outcomes.get(said.request_id)) is not None:
            return Reply(outcome=outcome)
        return Reply(refused="its agent is exiting" if self._closed else None)

    def recall(self, asides: Iterable[Mapping[str, Any]]) -> None:
        """Restore requests to earlier attempts, so that they are not repeated."""
        self._read(asides)
        for request_id in self._controls.keys() - self._outcomes.keys():
            unknown = (ENDED, "the agent has since ended; it may or may not have carried out the request")
            self._outcomes[request_id] = asdict(
                ControlAnswered(request_id, self._controls[request_id], False, None, *unknown)
            )

    def resume(self, asides: Iterable[Mapping[str, Any]]) -> None:
        """Take over from a lost worker."""
        self._read(asides)
        for request_id in self._controls.keys() - self._outcomes.keys():
            self._fail(
                request_id, LOST, "the worker was lost; the agent may or may not have carried out the request"
            )

    def open(self, conversation: Conversation) -> None:
        """Carry out requests in this conversation from now on."""
        ready = self._ready()
        if not ready.done():
            ready.set_result(conversation)

    def close(self, *, ended: bool) -> None:
        """Stop: the agent has ended, or is left to the next worker, which answers pending requests."""
        self._closed = True
        for request_id, task in list(self._under_way.items()):
            task.cancel()
            if ended:
                self._fail(request_id, ENDED, "the agent ended before it carried out the request")

    def take(self, said: Said, request: ControlRequest) -> None:
        """Carry out a request, unless it was taken before."""
        if self._closed or said.request_id in self._controls or self._clock() >= said.expires_at:
            return
        self._controls[said.request_id] = request.control
        task = asyncio.create_task(self._see_to(said, request))
        self._under_way[said.request_id] = task
        task.add_done_callback(lambda _: self._under_way.pop(said.request_id, None))

    def _read(self, asides: Iterable[Mapping[str, Any]]) -> None:
        for event in asides:
            if event["event"] == ControlRequested.name:
                self._controls[event["request_id"]] = event["control"]
            elif event["event"] == ControlAnswered.name:
                self._outcomes[event["request_id"]] = own_fields(event)

    async def _see_to(self, said: Said, request: ControlRequest) -> None:
        try:
            async with asyncio.timeout(said.expires_at - self._clock()):
                response = await self._do(said, request)
        except TimeoutError:
            self._fail(said.request_id, TIMED_OUT, "the agent did not answer in time; it may still do so")
        except TurnError as error:
            self._fail(said.request_id, error.kind, error.message)
        except (WorkerStopping, StaleClaim):
            log.info("request to agent left to the next worker", control=request.control)
        except Exception as error:
            # Its text might quote the request.
            log.error("request to agent failed", control=request.control, error=type(error).__name__)  # noqa: TRY400
            self._fail(said.request_id, "internal_error", f"{type(error).__name__}: see the worker's log")
        else:
            self._answer(ControlAnswered(said.request_id, request.control, True, response, None, None))

    async def _do(self, said: Said, request: ControlRequest) -> dict[str, Any]:
        value = None if request.control is Control.SEND else request.value
        async with self._recording:
            self._recorder.aside(ControlRequested(said.request_id, request.control.value, said.by, value))
            await self._recorder.recorded()
        conversation = await asyncio.shield(self._ready())
        return dict(await conversation.control(request))

    def _ready(self) -> asyncio.Future[Conversation]:
        if self._conversation is None:
            self._conversation = asyncio.get_running_loop().create_future()
        return self._conversation

    def _fail(self, request_id: str, kind: str, message: str) -> None:
        self._answer(ControlAnswered(request_id, self._controls[request_id], False, None, kind, message))

    def _answer(self, answered: ControlAnswered) -> None:
        if answered.request_id not in self._outcomes:
            self._outcomes[answered.request_id] = asdict(answered)
            self._recorder.aside(answered)
