"""Log of what was done to the fleet, and when, to read next to the workers' logs."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from pathlib import Path


class Story:
    """A file with a line for each action, in the time format of the workers' logs. Thread-safe."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()

    def tell(self, what: str) -> None:
        """Record what happens now."""
        at = datetime.now(UTC).isoformat()
        with self._lock, self._path.open("a") as file:
            file.write(f"{at} {what}\n")
