"""The order of the tests' files: those that take minutes come first, or they would be all that runs at the end."""

from __future__ import annotations

import pytest

_LONGEST_FIRST = (
    "workers/test_chaos.py",
    "workers/test_outages.py",
    "workers/test_ssh_",
    "workers/",
    "demo/",
    "stack/",
    "brokers/",
    "boards/test_boards_live.py",
    "ops/test_alerts_live.py",
    "remote/test_ending.py",
    "cli/",
    "docs/",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort files; within a file, the order stays. `pytest -n` needs --no-loadscope-reorder to keep it."""
    items.sort(key=lambda item: _place(str(item.path)))


def _place(path: str) -> int:
    return next((n for n, part in enumerate(_LONGEST_FIRST) if f"tests/{part}" in path), len(_LONGEST_FIRST))
