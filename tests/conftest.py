"""The order of the tests' files, when pytest looks for garbage, and what it says of skipped tests.

Files that take minutes come first, or they would be all that runs at the end.
"""

from __future__ import annotations

import gc

import pytest
import structlog

import tests.support.parsing  # takes the place of Python's own
import tests.support.transports  # noqa: F401  # likewise
from tests.support.skips import pytest_terminal_summary  # noqa: F401  # pytest looks for it here
from workers.brokers import embedded

_LONGEST_FIRST = (
    "system/test_chaos.py",
    "system/test_outages.py",
    "integration/remote/test_forged_files.py",
    "integration/cli/test_stopping.py",
    "integration/cli/test_silent_services.py",
    "integration/canvas/test_crashes.py",
    "integration/celery/test_clock_steps.py",
    "integration/remote/test_stopped_shells.py",
    "integration/turns/test_flood.py",
    "integration/ssh/",
    "integration/celery/",
    "integration/brokers/",
    "integration/clients/",
    "integration/turns/",
    "system/",
    "integration/ops/test_boards_live.py",
    "integration/ops/test_alerts_live.py",
    "integration/canvas/",
    "integration/remote/",
    "integration/",
    "docs/",
)


def pytest_configure() -> None:
    """Change what only processes that end soon can have."""
    # A command that a test runs in this process would fix its loggers, as in its own.
    configure = structlog.configure
    structlog.configure = lambda **settings: configure(**settings | {"cache_logger_on_first_use": False})
    # Limits of commands. Tests wait for their broker on a busy machine; those of the limits set their own.
    embedded._ANSWER_S, embedded._START_S = 60.0, 60.0


def pytest_sessionstart() -> None:
    """Thousands of tests are being made, and none is garbage: to look for it takes a quarter of the time."""
    gc.disable()


def pytest_collection_finish() -> None:
    """They stay for good, so nobody needs to look at them again."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort files; within a file, the order stays. `pytest -n` needs --no-loadscope-reorder to keep it."""
    items.sort(key=lambda item: _place(str(item.path)))


def _place(path: str) -> int:
    return next((n for n, part in enumerate(_LONGEST_FIRST) if f"tests/{part}" in path), len(_LONGEST_FIRST))
