"""A subscriber that follows a turn live from its beginning, through all faults."""

from __future__ import annotations

import threading
import time
import traceback
from typing import Any

from ops.errors import LedgerUnavailable
from ops.ledger import Ledger
from workers.client.sync import Client

_AGAIN_S = 0.5


class Watcher:
    """A thread that follows a turn; `seen` has the numbers of its events, in order of arrival."""

    def __init__(self, client: Client, ledger: Ledger, turn_id: str) -> None:
        self._client = client
        self._ledger = ledger
        self.turn_id = turn_id
        self.seen: list[int] = []
        self.error: str | None = None
        self._thread = threading.Thread(target=self._watch, name=f"watcher of {turn_id}", daemon=True)
        self._thread.start()

    def join(self, timeout_s: float) -> bool:
        """Wait for the end of the turn; return True if it was seen."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _watch(self) -> None:
        try:
            while True:
                try:
                    for event in self._client.events(self.turn_id, self._last):
                        self._note(event)
                except LedgerUnavailable:
                    time.sleep(_AGAIN_S)  # the books are away; whoever wants to see on asks again
                else:
                    return
        except Exception as error:
            self.error = "".join(traceback.format_exception(error, limit=-2, chain=False))

    @property
    def _last(self) -> int:
        return self.seen[-1] if self.seen else 0

    def _note(self, event: dict[str, Any]) -> None:
        self.seen.append(event["seq"])
