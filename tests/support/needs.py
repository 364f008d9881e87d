"""Requirements of a test on its machine: without them, it is skipped on a laptop and fails in CI.

`programs.txt` lists the programs; `.ci/test-tools` installs them, and `tests/support/skips.py` counts the skipped
tests.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NoReturn

import pytest

_TABLE = Path(__file__).with_name("programs.txt")
_SYSTEM = "/usr/sbin:/usr/bin:/sbin:/bin"


@functools.cache
def packages() -> Mapping[str, str]:
    """Return the Debian package of every program that tests start, directly or through runturn."""
    lines = (line for line in _TABLE.read_text().splitlines() if line and not line.startswith("#"))
    return dict(line.split(maxsplit=1) for line in lines)


def find(program: str) -> str | None:
    """Return a program's path, preferring the system's own, which every account can reach."""
    assert program in packages(), f"{_TABLE} does not list {program}"
    return shutil.which(program, path=f"{_SYSTEM}:{os.environ['PATH']}")


def need(program: str) -> str:
    """Return a program's path. Skip or fail the test if it is missing."""
    return find(program) or missing(lack_of(program))


def need_root() -> None:
    """Skip the test unless run by root, even in CI, where the account is chosen deliberately."""
    if os.geteuid() != 0:
        pytest.skip("only root can do this")


def need_namespaces() -> None:
    """Skip or fail the test unless this machine lets us make PID namespaces."""
    apart = [
        need("unshare"),
        *([] if os.geteuid() == 0 else ["--user"]),
        "--pid",
        "--fork",
        "--mount-proc",
        "true",
    ]
    if subprocess.run(apart, check=False, capture_output=True).returncode != 0:
        missing(f"this machine lets us make no PID namespace ({' '.join(apart)})")


def need_private_mounts() -> None:
    """Skip or fail the test unless this machine lets us mount a disk that only we and our children see."""
    apart = [need("unshare"), "-rm", "true"]
    if subprocess.run(apart, check=False, capture_output=True).returncode != 0:
        missing("this machine lets us mount no disk of our own (unshare -rm)")


def missing(what: str) -> NoReturn:
    """Skip the test because something is missing; fail it in CI."""
    if os.environ.get("CI"):
        pytest.fail(what)
    pytest.skip(what)


def lack_of(program: str) -> str:
    """Return the message for a missing program."""
    return f"{program} is not installed"


def lacking(programs: Iterable[str]) -> list[str]:
    """Return the Debian packages of these programs that this machine does not have."""
    return sorted({packages()[program] for program in programs if find(program) is None})
