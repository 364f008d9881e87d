"""How slow a machine is while something is timed there: others may keep it busy, and only now and then."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_REST = 4  # times as long as the work took


class Slowness:
    """The longest time that a known piece of work has taken."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.longest_s = 0.0
        self._work = work
        self._over = threading.Event()

    def _measure(self) -> float:
        began = time.monotonic()
        self._work()
        took_s = time.monotonic() - began
        self.longest_s = max(self.longest_s, took_s)
        return took_s

    def _measure_on(self) -> None:
        took_s = self.longest_s
        while not self._over.wait(_REST * took_s):
            took_s = self._measure()


@contextmanager
def slowness(work: Callable[[], object]) -> Iterator[Slowness]:
    """Time the work once, and again and again while the block runs; the last time counts, too."""
    measured = Slowness(work)
    measured._measure()
    thread = threading.Thread(target=measured._measure_on, daemon=True)
    thread.start()
    try:
        yield measured
    finally:
        measured._over.set()
        thread.join()
