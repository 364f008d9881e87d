"""What producers ask of one attempt's agent while it runs.

Each request is noted in the ledger before it is done, so that a worker which takes over never does it again: it
answers, for those whose outcome nobody has noted, that the worker was lost meanwhile.
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
    """Belongs to the loop that runs the turn, but for `reply`."""

    def __init__(self, recorder: EventRecorder, clock: Callable[[], float]) -> None:
        self._recorder = recorder
        self._clock = clock
        self._conversation: asyncio.Future[Conversation] | None = None
        self._recording = asyncio.Lock()  # one after another, as they came
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._controls: dict[str, str] = {}  # those requested, by id
        self._outcomes: dict[str, Mapping[str, Any]] = {}
        self._closed = False

    def reply(self, said: Said) -> Reply:
        """What its producer is told at once. May be called from any thread."""
        if (outcome := self._outcomes.get(said.request_id)) is not None:
            return Reply(outcome=outcome)
        return Reply(refused="its agent is ending" if self._closed else None)

    def recall(self, asides: Iterable[Mapping[str, Any]]) -> None:
        """Know what earlier attempts were asked: it is not done again."""
        self._read(asides)
        for request_id in self._controls.keys() - self._outcomes.keys():
            unknown = (ENDED, "its agent has ended meanwhile: it may have been done, or not")
            self._outcomes[request_id] = asdict(
                ControlAnswered(request_id, self._controls[request_id], False, None, *unknown)
            )

    def resume(self, asides: Iterable[Mapping[str, Any]]) -> None:
        """Take over from a worker that was lost."""
        self._read(asides)
        for request_id in self._controls.keys() - self._outcomes.keys():
            self._fail(request_id, LOST, "its worker was lost meanwhile: it may have been done, or not")

    def open(self, conversation: Conversation) -> None:
        """The agent can be talked to from now on."""
        ready = self._ready()
        if not ready.done():
            ready.set_result(conversation)

    def close(self, *, ended: bool) -> None:
        """The agent has ended; or it is left to the next worker, which answers what is under way."""
        self._closed = True
        for request_id, task in list(self._under_way.items()):
            task.cancel()
            if ended:
                self._fail(request_id, ENDED, "the agent has ended before it was done")

    def take(self, said: Said, request: ControlRequest) -> None:
        """Do what is asked, unless it was asked before."""
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
            self._fail(said.request_id, TIMED_OUT, "the agent has not answered in time; it may do so yet")
        except TurnError as error:
            self._fail(said.request_id, error.kind, error.message)
        except (WorkerStopping, StaleClaim):
            log.info("a request to an agent is left to the next worker", control=request.control)
        except Exception as error:
            # Its text might be that of the request.
            log.error("a request to an agent failed", control=request.control, error=type(error).__name__)  # noqa: TRY400
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
