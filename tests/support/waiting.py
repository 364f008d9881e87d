"""Waiting for a condition, instead of sleeping and hoping.

A file exists before anything is written to it: wait for its content, not for the file.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
_REST = 4  # times as long as the work took


def until(condition: Callable[[], T], what: str, timeout_s: float = 120.0) -> T:
    """Return the result of `condition` once it is true; fail naming `what` after `timeout_s` seconds.

    Checking uses at most a fifth of a core, to leave the rest to what is awaited.
    """
    deadline = time.monotonic() + timeout_s
    pause = 0.01
    while True:
        began = time.thread_time()
        if found := condition():
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"timed out after {timeout_s:.0f} s waiting for {what}")
        pause = min(0.1, 1.2 * pause)
        time.sleep(max(pause, 4 * (time.thread_time() - began)))


def text_of(file: Path) -> str:
    """Return the current content of a file; empty if it does not exist."""
    try:
        return file.read_text(errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return ""


def words_of(file: Path) -> list[str]:
    """Return the words of a file; none if it is empty or does not exist."""
    return text_of(file).split()


def lines_of(file: Path) -> list[str]:
    """Return the complete lines of a file."""
    text, _, _ = text_of(file).rpartition("\n")
    return text.splitlines()


def remove_spools(path: Path) -> None:
    """Remove a spool, or a directory of them. A turn that is ending may create a file in it meanwhile."""

    def gone() -> bool:
        shutil.rmtree(path, ignore_errors=True)
        return not path.exists()

    until(gone, f"{path} to be gone")


class Slowness:
    """How slow a machine is while something is timed there: others may keep it busy, and only now and then.

    `longest_s` is the longest time that a known piece of work has taken.
    """

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
