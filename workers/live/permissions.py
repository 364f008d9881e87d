"""Questions of one attempt's agent to its producer: whether it may use a tool that its rules leave open.

A question has the id of the tool call. So if the agent still waits, a worker that takes over uses the answer in
the ledger, or asks again under the same id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Any
from uuid import uuid4

import orjson
from pydantic import JsonValue

from adapters.live import Permission, Verdict
from ops.redaction import without_keys
from workers.events.model import PermissionAnswered, PermissionRequested, own_fields
from workers.events.recorder import EventRecorder
from workers.live.messages import MAX_REQUEST_ID, Reply, Said

_LONGEST = 4_000  # characters shown of one text in a tool's input
_LARGEST = 65_536  # bytes shown of a whole input
_MOST_ASKED = 1_000  # questions of one attempt; an agent in a loop could ask for ever
_SILENCE = "no answer in time"
_WITHDRAWN = "the agent is no longer waiting for an answer"


class PermissionRequests:
    """Questions of one attempt. Use on the loop that runs the turn, except for `reply`."""

    def __init__(self, recorder: EventRecorder, clock: Callable[[], float]) -> None:
        self._recorder = recorder
        self._clock = clock
        self._open: dict[str, asyncio.Future[tuple[Verdict, str]]] = {}
        self._answers: dict[str, Mapping[str, Any]] = {}
        self._expected: set[str] = set()  # asked of an earlier worker
        self._asked: set[str] = set()  # all so far
        self._left = False

    def resume(self, asides: Iterable[Mapping[str, Any]]) -> None:
        """Take over from a lost worker."""
        for event in asides:
            if event["event"] == PermissionRequested.name:
                self._expected.add(event["request_id"])
                self._asked.add(event["request_id"])
            elif event["event"] == PermissionAnswered.name:
                self._answers[event["request_id"]] = own_fields(event)

    async def ask(self, permission: Permission, timeout_s: float) -> Verdict | None:
        """Ask, and wait for the answer; None: no answer in time, or the question cannot be asked."""
        request_id = permission.tool_use_id or uuid4().hex
        if (known := self._answers.get(request_id)) is not None:
            return _verdict(known)
        too_often = request_id not in self._asked and len(self._asked) >= _MOST_ASKED
        if too_often or len(request_id) > MAX_REQUEST_ID:
            return None
        self._asked.add(request_id)
        self._open[request_id] = asyncio.get_running_loop().create_future()
        self._recorder.aside(
            PermissionRequested(
                request_id,
                permission.tool[:_LONGEST],
                permission.tool_use_id,
                _shown_input(permission.input),
                self._clock() + timeout_s,
            )
        )
        try:
            answered = await self._answered(request_id, timeout_s)
            await self._recorder.record(answered)  # first, so that a worker that takes over does not ask again
            self._answers[request_id] = asdict(answered)
        finally:
            del self._open[request_id]
        return _verdict(self._answers[request_id])

    async def _answered(self, request_id: str, timeout_s: float) -> PermissionAnswered:
        try:
            async with asyncio.timeout(timeout_s):
                verdict, by = await self._open[request_id]
        except TimeoutError:
            return PermissionAnswered(request_id, None, _SILENCE, None)
        except asyncio.CancelledError:
            if not self._left:
                withdrawn = PermissionAnswered(request_id, None, _WITHDRAWN, None)
                self._answers[request_id] = asdict(withdrawn)
                self._recorder.aside(withdrawn)
            raise
        return PermissionAnswered(request_id, verdict.allowed, verdict.reason, by)

    def leave(self) -> None:
        """Leave the agent and its open questions to the next worker."""
        self._left = True

    def reply(self, said: Said) -> Reply | None:
        """Return the immediate reply to the producer; None: the agent is about to ask again.

        May be called from any thread.
        """
        if (known := self._answers.get(said.request_id)) is not None:
            return Reply(outcome=known)
        if said.request_id in self._open:
            return Reply()
        if said.request_id in self._expected:
            return None
        return Reply(refused=f"the agent has no open question {said.request_id}")

    def take(self, said: Said, verdict: Verdict) -> None:
        """Accept the producer's answer; the first one stands."""
        answer = self._open.get(said.request_id)
        if answer is not None and not answer.done():
            answer.set_result((verdict, said.by))


def _verdict(answered: Mapping[str, Any]) -> Verdict | None:
    return None if answered["allowed"] is None else Verdict(answered["allowed"], answered["reason"])


def _shown_input(given: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    """Return a tool's input as shown; one that is still too large, as the beginning of its JSON."""
    shown = {name: _shown(value) for name, value in given.items()}
    text = orjson.dumps(shown).decode()
    return shown if len(text) <= _LARGEST else {"input": _shown(text)}


def _shown(value: JsonValue) -> JsonValue:
    """Return a tool's input without anything that looks like a key, and with long texts cut."""
    match value:
        case str():
            text = without_keys(value)
            more = len(text) - _LONGEST
            return text if more <= 0 else f"{text[:_LONGEST]}… ({more} more characters)"
        case list():
            return [_shown(each) for each in value]
        case dict():
            return {name: _shown(each) for name, each in value.items()}
    return value
