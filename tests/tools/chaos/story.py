"""What was done to the fleet, and when: to be read beside the workers' logs."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from pathlib import Path


class Story:
    """A file with a line for each deed, in the time format of the workers' logs; from any thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()

    def tell(self, what: str) -> None:
        """Write down what happens now."""
        at = datetime.now(UTC).isoformat()
        with self._lock, self._path.open("a") as file:
            file.write(f"{at} {what}\n")
