"""Progress of the answers to one thread, followed in its rollout."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

_CALLS = ("function_call", "custom_tool_call")
_RESULTS = ("function_call_output", "custom_tool_call_output")
# Replaces a result: the turn ended without another request to the model.
_ABORTED = re.compile(r"(?:^|\n)aborted by user(?: after [0-9.]+s)?$")
# A thread is compacted by a summary, which is an ordinary answer and counted at its start and its end; or by the
# API, whose answer has a usage record but no count, and is counted at its end.
_COUNTED_BY_SUMMARY = 2


@dataclass(slots=True)
class Progress:
    """Progress of one thread in the lines read."""

    calls: int = 0  # tool calls without a result
    called: bool = False  # tools were called since the last usage record, which follows its answer's tool calls
    asking: bool = False  # the thread is waiting for an answer
    working: bool = False  # tools called by the last recorded answer are running, or were aborted
    unbilled: int = 0  # tries to get an answer, minus answers with a usage record

    @property
    def waiting(self) -> bool:
        """Return True if an answer may have been in progress at the end, or has no usage record."""
        return self.asking or self.called

    @property
    def lost(self) -> bool:
        """Return True if an answer broke off or has no usage record."""
        return self.waiting or self.unbilled > 0

    def counted(self) -> None:
        """Note that an answer was counted. Results of its calls may already have requested another answer."""
        self.called = False

    def take(self, kind: str, payload: dict[str, Any]) -> None:
        """Process one record."""
        if kind == "token_usage_record":
            self.working, self.called, self.asking = self.called, False, False
            self.unbilled -= 1
        elif kind == "compacted":
            self.asking = True
            self.unbilled -= _COUNTED_BY_SUMMARY if payload.get("message") else 0
        elif kind == "event_msg":
            self._event(payload["type"])
        elif kind == "response_item":
            self._item(payload["type"], payload)

    def _event(self, event: object) -> None:
        if event == "token_count":
            self.unbilled += 1
        elif event == "task_started":
            self.calls, self.called, self.asking, self.working = 0, False, True, False
        elif event == "task_complete":
            self.asking = False

    def _item(self, item: object, payload: dict[str, Any]) -> None:
        if item in _CALLS:
            self.calls += 1
            self.called, self.asking = True, False
        elif item in _RESULTS:
            self.calls -= 1
            self.asking = self.calls <= 0 and not _ABORTED.search(str(payload.get("output")))
            self.working = self.working and not self.asking
