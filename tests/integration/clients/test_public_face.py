"""What producers import from `workers`: all names are there, and bring nothing of a worker along."""

from __future__ import annotations

import subprocess
import sys

import pytest

import workers

_PROGRAM = """
import sys
import workers

for name in workers.__all__:
    getattr(workers, name)
print(*sorted(name for name in sys.modules if name.startswith(("workers.worker", "workers.turn", "asyncssh"))))
"""


def test_producers_load_nothing_of_a_worker() -> None:
    said = subprocess.run([sys.executable, "-c", _PROGRAM], check=True, capture_output=True, text=True)
    assert said.stdout.strip() == ""


def test_other_names_are_no_attributes() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Cliant'"):
        _ = workers.Cliant
