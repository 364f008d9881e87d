"""Work for the thread that owns Celery's connection: nothing of Celery's is touched on any other one."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable
from typing import Any

import structlog

log = structlog.get_logger(__name__)


class Hub:
    """Calls that wait for Celery's loop, and wake it. While it is not running, they stay."""

    def __init__(self) -> None:
        self._calls: deque[Callable[[], object]] = deque()
        self._bell, self._cord = os.pipe()
        os.set_blocking(self._bell, False)
        os.set_blocking(self._cord, False)

    def post(self, call: Callable[[], object]) -> None:
        """Have it called soon; from any thread."""
        self._calls.append(call)
        with contextlib.suppress(BlockingIOError):  # the bell rings already
            os.write(self._cord, b"!")

    def attend(self, hub: Any) -> None:
        """Listen to the bell in a new loop of Celery's."""
        hub.add_reader(self._bell, self.run)

    def run(self) -> None:
        """Make all calls that wait."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._bell, 65_536)
        while self._calls:
            call = self._calls.popleft()
            try:
                call()
            except Exception:
                log.exception("an errand failed")
