"""The surroundings in which the suite runs, whoever starts it: pytest loads this first, see `addopts`.

A caller's terminal, language, umask, home and variables change what programs say and do, and Python and pytest
read theirs before a test could set them. So pytest is started again, as a child whose environment is the same on
each machine; its parent waits, and removes what the run has left in the temporary directory.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_FOLDER: Final = "RT_SUITE_FOLDER"  # who has it is inside; no name that programs under test would look at
_TAKEN: Final = (
    "PATH",
    "CI",
    "OUTAGE_S",
)  # where programs are, whether one may be missing, how long `make outages` is
_REQUESTS: Final = (signal.SIGTERM, signal.SIGHUP)


def environment(caller: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return the whole environment of a run whose home and temporary directory are below `folder`."""
    return {
        **{name: caller[name] for name in _TAKEN if name in caller},
        _FOLDER: str(folder),
        "HOME": str(folder / "home"),
        "TMPDIR": str(folder),
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "TERM": "xterm-256color",
        "COLUMNS": "80",
        "LINES": "24",
        "GIT_CONFIG_NOSYSTEM": "1",
    }


def inside(environ: Mapping[str, str]) -> bool:
    """Return whether this process belongs to a run that has its surroundings: pytest, or one of its workers."""
    folder = environ.get(_FOLDER)
    return folder is not None and environ.get("TMPDIR") == folder and Path(folder).is_dir()


def run() -> int:
    """Run this process's command line again, in surroundings of its own; return its exit status."""
    # In /tmp, and short: the path of a socket has to fit into 108 bytes.
    folder = Path(tempfile.mkdtemp(prefix="rt-suite-", dir="/tmp"))
    try:
        folder.chmod(0o755)  # servers and logins of other accounts have their files there
        (folder / "home").mkdir(mode=0o755)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C reaches the child as well
        process = subprocess.Popen(
            [sys.executable, *sys.orig_argv[1:]],
            env=environment(os.environ, folder),
            umask=0o022,
            preexec_fn=_heed_signals,  # noqa: PLW1509  # no other thread runs yet
        )
        for number in _REQUESTS:  # pytest would die of them as it stands; this one it knows
            signal.signal(number, lambda *_: process.send_signal(signal.SIGINT))
        status = process.wait()
    finally:
        _remove(folder)
    return status if status >= 0 else 128 - status


def _heed_signals() -> None:
    """Undo what a shell does to jobs in the background, and nohup to its program."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _remove(folder: Path) -> None:
    """Remove what tests have left, with directories that nobody may enter among it."""
    for place, _, _ in os.walk(folder):
        with contextlib.suppress(OSError):
            if not os.access(place, os.R_OK | os.W_OK | os.X_OK):
                Path(place).chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        print(f"the tests have left {folder}, and it cannot be removed", file=sys.stderr)


if not inside(os.environ):
    sys.exit(run())
