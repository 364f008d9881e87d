"""Uniform environment of the suite, regardless of the caller; pytest loads this first, see `addopts`.

A caller's terminal, language, umask, home and variables affect what programs print and do, and Python and pytest
read theirs before a test could set them. So pytest is started again, with an environment that is the same on each
machine; the first process waits, and removes what the run has left, see `leftovers`.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.support.leftovers import run_alone
from tests.support.shared import FOLDER, hold_run, run_folder

_TAKEN: Final = (
    "PATH",  # where programs are
    "CI",  # whether one may be missing
    "KILLS",  # of `make outages`: how many
    "OUTAGE_S",  # likewise: how long
    "LEVELS",  # of isolation, in the contract
)


def environment(caller: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return the complete environment of a run whose home and temporary directory are below `folder`."""
    return {
        **{name: caller[name] for name in _TAKEN if name in caller},
        FOLDER: str(folder),
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
    """Return True if this process, pytest or one of its workers, runs in that environment."""
    folder = environ.get(FOLDER)
    return folder is not None and environ.get("TMPDIR") == folder and Path(folder).is_dir()


def run() -> int:
    """Run this process's command line again, in that environment; return its exit status."""
    # In /tmp, and short: the path of a socket has to fit into 108 bytes.
    folder = Path(tempfile.mkdtemp(prefix="rt-suite-", dir="/tmp"))
    folder.chmod(0o755)  # servers and logins of other accounts have their files there
    (folder / "home").mkdir(mode=0o755)
    return run_alone([sys.executable, *sys.orig_argv[1:]], environment(os.environ, folder), folder)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Put tests' directories below the run's, for short paths; those in a `--basetemp` are kept.

    Resources that processes of the run share end with this process.
    """
    if config.option.basetemp is None:
        config.option.basetemp = f"{run_folder()}/t"
    if not hasattr(config, "workerinput"):  # workers of xdist end before it, and before each other
        hold_run()


if not inside(os.environ):
    sys.exit(run())
