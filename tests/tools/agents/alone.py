"""Nothing that the matrix has started outlives it, however it ends: see `tests.support.leftovers`."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.support.leftovers import INTERRUPTED, run_alone

_FOLDER: Final = "RT_AGENTS_FOLDER"  # who has it is inside


def alone(play: Callable[[], int]) -> int:
    """Run this process's command line again, below a keeper; there, `play`. Return its exit status."""
    if os.environ.get(_FOLDER):
        # Its threads wait for agents, for minutes: so it ends at once, and the keeper ends what it leaves.
        signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
        return play()
    # In /tmp, and short: the path of a socket has to fit into 108 bytes.
    folder = Path(tempfile.mkdtemp(prefix="rt-matrix-", dir="/tmp"))
    environment = {**os.environ, _FOLDER: str(folder), "TMPDIR": str(folder)}
    return run_alone([sys.executable, *sys.orig_argv[1:]], environment, folder)
