"""A recording that stops until a test lets it go on."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path


class Held:
    """A recording that its agent reads from a pipe: the first lines at once, the others when it is let go.

    Only one agent can read it.
    """

    def __init__(self, path: Path, recording: Path, lines: int = 3) -> None:
        os.mkfifo(path)
        self.path = path
        every = recording.read_bytes().splitlines(keepends=True)
        self._first, self._others = b"".join(every[:lines]), b"".join(every[lines:])
        self._released = threading.Event()
        threading.Thread(target=self._feed, daemon=True).start()

    def let_go(self) -> None:
        """Let it go on, now or as soon as it is there."""
        self._released.set()

    def _feed(self) -> None:
        with contextlib.suppress(BrokenPipeError), self.path.open("wb", buffering=0) as pipe:
            pipe.write(self._first)
            self._released.wait()
            pipe.write(self._others)
