"""How far the answers to one thread have come, by the records of its rollout."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

_CALLS = ("function_call", "custom_tool_call")
_RESULTS = ("function_call_output", "custom_tool_call_output")
# In the place of a result: the turn ended, and asked nobody what to make of it.
_ABORTED = re.compile(r"(?:^|\n)aborted by user(?: after [0-9.]+s)?$")
# A thread is made shorter by a summary, an answer as any other, and counted as that starts and when it is done; or
# by the API, whose answer has a bill and no count of its own, and counted when it is done.
_COUNTED_BY_SUMMARY = 2


@dataclass(slots=True)
class Progress:
    """One thread, in what was read of it."""

    calls: int = 0  # of tools that have given nothing yet
    called: bool = False  # since its last bill: tool calls come before the bill of their answer
    asking: bool = False  # it waited for an answer when it ended
    working: bool = False  # tools that its last bill had called for were running then, or were broken off
    unbilled: int = 0  # tries to get an answer, less the answers that have a bill

    @property
    def waiting(self) -> bool:
        """Whether an answer may have been under way at the end, or has a bill that nobody told."""
        return self.asking or self.called

    @property
    def lost(self) -> bool:
        """Whether an answer broke off, or has a bill that nobody told."""
        return self.waiting or self.unbilled > 0

    def counted(self) -> None:
        """Note that an answer was counted. Its calls may have given results by then, which ask for another one."""
        self.called = False

    def take(self, kind: str, payload: dict[str, Any]) -> None:
        """Follow one record."""
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
