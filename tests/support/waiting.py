"""Waiting for a condition, instead of sleeping and hoping.

A file is there before anything is written to it: wait for what it says, not for the file.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def until(condition: Callable[[], T], what: str, timeout_s: float = 120.0) -> T:
    """Return what `condition` returns as soon as that is true; fails naming `what` after `timeout_s` seconds.

    Looking takes a fifth of a core at most, and less the longer it takes: what is waited for needs it.
    """
    deadline = time.monotonic() + timeout_s
    pause = 0.01
    while True:
        began = time.thread_time()
        if found := condition():
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout_s:.0f} s in vain for {what}")
        pause = min(0.1, 1.2 * pause)
        time.sleep(max(pause, 4 * (time.thread_time() - began)))


def text_of(file: Path) -> str:
    """Return what a file says so far; nothing if it is not there yet, or not any more."""
    try:
        return file.read_text(errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return ""


def words_of(file: Path) -> list[str]:
    """Return the words of a file; none before anybody has written any."""
    return text_of(file).split()


def lines_of(file: Path) -> list[str]:
    """Return the lines of a file that have been written to their end."""
    text, _, _ = text_of(file).rpartition("\n")
    return text.splitlines()
