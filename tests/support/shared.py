"""Resources shared by all processes of a run, created by the first that needs them."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

T = TypeVar("T")  # what JSON has

FOLDER: Final = "RT_SUITE_FOLDER"  # names the run's directory; programs under test have no use for the name


def run_folder() -> Path:
    """Return the directory of this run, which is removed at the end."""
    return Path(os.environ[FOLDER])


def shared(name: str, make: Callable[[Path], T]) -> T:
    """Return the result of `make`, called once per run with a path in the run's directory."""
    place = run_folder() / name
    made = place.with_suffix(".json")
    with place.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            made.write_text(json.dumps(make(place)))
        return json.loads(made.read_text())  # type: ignore[no-any-return]


def hold_run() -> None:
    """Make this process the end of the run: processes tied to the run end with it, however it exits."""
    os.mkfifo(run_pipe())
    os.open(run_pipe(), os.O_RDWR)  # until the process is gone


def run_pipe() -> Path:
    """Return a named pipe whose readers see end of file when the run is over."""
    return run_folder() / "lives"
