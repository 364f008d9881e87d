"""The turns whose spools or processes were struck, each once, and what the audit must allow them."""

from __future__ import annotations

import threading


class Struck:
    """The struck turns. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._turns: set[str] = set()
        self.may_be_short: set[str] = set()  # turns whose bill may have been lost with the agent or its spool
        self.removed: set[str] = set()  # ids of spools

    def claim(self, turn_id: str) -> bool:
        """Mark a turn as struck; return False if it already was."""
        with self._lock:
            if turn_id in self._turns:
                return False
            self._turns.add(turn_id)
            return True
