"""Work for the thread that owns Celery's connection, the only one that may touch Celery's objects."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable
from typing import Any

import structlog

log = structlog.get_logger(__name__)


class Hub:
    """Calls queued for Celery's loop, which they wake. They stay queued while it is not running."""

    def __init__(self) -> None:
        self._calls: deque[Callable[[], object]] = deque()
        self._bell, self._cord = os.pipe()
        os.set_blocking(self._bell, False)
        os.set_blocking(self._cord, False)

    def post(self, call: Callable[[], object]) -> None:
        """Schedule a call; from any thread."""
        self._calls.append(call)
        with contextlib.suppress(BlockingIOError):  # the loop has already been woken
            os.write(self._cord, b"!")

    def attend(self, hub: Any) -> None:
        """Run the calls on a new loop of Celery's."""
        hub.add_reader(self._bell, self.run)

    def run(self) -> None:
        """Run all waiting calls."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._bell, 65_536)
        while self._calls:
            call = self._calls.popleft()
            try:
                call()
            except Exception:
                log.exception("a call on Celery's loop failed")
