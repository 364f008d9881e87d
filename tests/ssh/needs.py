"""What a test needs of its machine: without it, it skips on a laptop and fails in CI."""

from __future__ import annotations

import os
import shutil
from typing import NoReturn

import pytest


def need(tool: str) -> str:
    """Return the path of a tool: the system's own, which every account can reach, before anybody else's."""
    path = shutil.which(tool, path=f"/usr/sbin:/usr/bin:/sbin:/bin:{os.environ['PATH']}")
    return path or missing(f"{tool} is not installed; `make test-tools` does that")


def need_root() -> None:
    """Skip for anybody but root, also in CI: who runs the tests there is no accident."""
    if os.geteuid() != 0:
        pytest.skip("only root can do this")


def missing(what: str) -> NoReturn:
    """End a test that lacks something that a machine for tests should have."""
    if os.environ.get("CI"):
        pytest.fail(what)
    pytest.skip(what)
