"""A user of a live turn: allows what its agent requests, and sends input, through all faults."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any

import orjson

from adapters.live import Control, ControlRequest, Verdict
from ops.errors import LedgerUnavailable, UnknownTurn
from ops.ledger import Ledger
from tests.tools.chaos.story import Story
from workers.client.sync import Client
from workers.errors import BrokerUnavailable, ControlFailed, ControlRefused, ControlTimeout

_AGAIN_S = 0.5
_ANSWER_S = 15.0
_SAYS = {
    "say-1": ControlRequest(Control.SEND, "and more"),
    "say-2": ControlRequest(Control.SET_PERMISSION_MODE, "default"),
    "say-3": ControlRequest(Control.CONTEXT_USAGE),
}


class Speaker:
    """A thread that runs until the turn has finished, and repeats each request until its outcome is known."""

    def __init__(self, client: Client, ledger: Ledger, turn_id: str, story: Story) -> None:
        self._client = client
        self._ledger = ledger
        self._turn_id = turn_id
        self._story = story
        self._unsaid = dict(_SAYS)
        threading.Thread(target=self._speak, name=f"speaker to {turn_id}", daemon=True).start()

    def _speak(self) -> None:
        while True:
            with contextlib.suppress(LedgerUnavailable, BrokerUnavailable, UnknownTurn, ControlTimeout):
                if self._ledger.reports.result(self._turn_id) is not None:
                    return
                self._take_part([orjson.loads(line) for _, line in self._ledger.events.after(self._turn_id)])
            time.sleep(_AGAIN_S)

    def _take_part(self, events: list[dict[str, Any]]) -> None:
        answered = {event["request_id"] for event in events if event["event"] == "permission_answered"}
        for event in events:
            if event["event"] == "permission_requested" and event["request_id"] not in answered:
                with contextlib.suppress(ControlRefused):  # nobody asks it any more
                    self._client.answer(self._turn_id, event["request_id"], Verdict(True), timeout_s=_ANSWER_S)
        for request_id in list(self._unsaid):
            self._say(request_id)

    def _say(self, request_id: str) -> None:
        request = self._unsaid[request_id]
        try:
            self._client.control(self._turn_id, request, request_id=request_id, timeout_s=_ANSWER_S)
        except ControlRefused:  # its agent has not begun, or is about to end
            return
        except ControlFailed as failure:
            self._story.tell(f"{request_id} to {self._turn_id} failed: {failure}")
        del self._unsaid[request_id]
