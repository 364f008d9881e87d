"""What a run says at its end of the tests that it has skipped."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.support import needs
from tests.support.needs import lack_of
from tests.support.nested import PYTEST
from tests.support.places import ROOT
from tests.support.skips import block

CHECKOUT = ROOT
TESTS = """
import pytest
from tests.support.needs import lack_of, missing

@pytest.mark.parametrize("number", range(3))
def test_that_needs_a_program(number):
    missing(lack_of("fish"))

@pytest.mark.skipif(True, reason="not on\\nthis machine")
def test_that_needs_something_else():
    pass

def test_that_needs_nothing():
    pass
"""


def run(tmp_path: Path, **environment: str) -> list[str]:
    """Run the tests in two processes; return what pytest says."""
    (tmp_path / "test_some.py").write_text(TESTS)
    command = [*PYTEST, "-q", "-n", "2", "-p", "tests.support.skips", f"--rootdir={tmp_path}", tmp_path]
    inherited = {name: value for name, value in os.environ.items() if name != "CI"}
    done = subprocess.run(
        command,
        cwd=CHECKOUT,
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.splitlines()


def test_the_end_says_how_many_tests_were_skipped_for_want_of_what(tmp_path: Path) -> None:
    *said, closing = run(tmp_path)
    (start,) = (number for number, line in enumerate(said) if line.strip("=") == " skipped ")
    assert said[start + 1 : start + 3] == ["     3 fish is not installed", "     1 not on this machine"]
    assert closing.startswith("1 passed, 4 skipped in")


def test_with_ci_set_a_missing_program_fails(tmp_path: Path) -> None:
    assert run(tmp_path, CI="true")[-1].startswith("3 failed, 1 passed, 1 skipped in")


def test_one_command_installs_all_programs_that_the_machine_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = {"git", "prometheus", "promtool", "sshd"}
    monkeypatch.setattr(needs, "find", lambda program: None if program in absent else f"/usr/bin/{program}")
    reasons = Counter({"only root can do this": 2, lack_of("sshd"): 9})
    assert list(block(reasons)) == [
        "     9 sshd is not installed",
        "     2 only root can do this",
        "To install all programs that this machine lacks, as root:",
        "    apt-get install --no-install-recommends git openssh-server prometheus",
    ]
    assert list(block(Counter({"only root can do this": 2}))) == ["     2 only root can do this"]


def test_a_test_can_ask_only_for_programs_that_are_listed() -> None:
    with pytest.raises(AssertionError, match=r"programs\.txt does not list emacs"):
        needs.need("emacs")
