"""However a run of the tests ends, nothing that it has started or written is left."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.support.nested import PYTEST
from tests.support.places import ROOT
from tests.support.processes import gone, gone_pid
from tests.support.shared import FOLDER
from tests.support.waiting import lines_of, until

# It starts something that loses its parent and has nothing of its environment, and says where it is.
RUN = """
import os, subprocess, sys, tempfile, time
def test_it():
    folder = tempfile.mkdtemp(prefix="rt-")
    subprocess.run(["sh", "-c", "setsid sleep 600 >/dev/null 2>&1 </dev/null & echo $! >&2"], env={}, cwd="/",
        stderr=open("left", "wb"))
    with open("said", "w") as said:
        print(os.getpid(), open("left").read().strip(), os.path.dirname(folder), sep="\\n", file=said)
    while not os.path.exists("go"):
        time.sleep(0.02)
    HOW
"""


@dataclass(frozen=True, slots=True)
class Run:
    """One that has left a process and a folder."""

    called: subprocess.Popen[str]
    pytest: psutil.Process
    left: psutil.Process
    folder: Path

    def assert_nothing_left(self) -> None:
        """Neither a process of it nor its directory."""
        until(lambda: gone(self.left) and gone(self.pytest) and not self.folder.exists(), "the end of everything")


@contextmanager
def run(place: Path, how: str = "") -> Iterator[Run]:
    """One that goes on when there is a file `go`, and ends like that."""
    (place / "test_it.py").write_text(RUN.replace("HOW", how))
    environment = {name: value for name, value in os.environ.items() if name != FOLDER}
    command = [*PYTEST, "-p", "tests.support.surroundings", "-p", "no:cacheprovider", "-q"]
    with subprocess.Popen(
        [*command, "-c", os.devnull, "--rootdir", place, "test_it.py"],
        cwd=place,
        env={**environment, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as called:
        until(lambda: len(lines_of(place / "said")) == 3 or called.poll() is not None, "a run of tests")
        pid, left, folder = lines_of(place / "said")
        yield Run(called, psutil.Process(int(pid)), psutil.Process(int(left)), Path(folder))


def test_run_that_passes_and_leaves_something_fails_and_names_it(tmp_path: Path) -> None:
    with run(tmp_path) as ended:
        (tmp_path / "go").touch()
        said, _ = ended.called.communicate(timeout=100)
    assert "1 passed" in said
    assert ended.called.returncode == 1
    assert f"the tests have left process {ended.left.pid}: sleep 600" in said
    assert "the tests have left the folder rt-" in said
    ended.assert_nothing_left()


def test_run_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with run(tmp_path, "assert False") as ended:
        (tmp_path / "go").touch()
        ended.called.communicate(timeout=100)
    assert ended.called.returncode == 1
    ended.assert_nothing_left()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_run_that_is_told_to_stop_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    """Ctrl-C tells the whole group; whoever stops a process tells only the one that was called."""
    with run(tmp_path) as ended:
        if number is signal.SIGINT:
            os.killpg(ended.called.pid, number)
        else:
            ended.called.send_signal(number)
        said, _ = ended.called.communicate(timeout=100)
    assert ended.called.returncode == 2
    assert "KeyboardInterrupt" in said
    ended.assert_nothing_left()


def test_run_whose_pytest_is_killed_leaves_nothing(tmp_path: Path) -> None:
    with run(tmp_path) as ended:
        ended.pytest.kill()
        assert ended.called.wait(100) == 128 + signal.SIGKILL
    ended.assert_nothing_left()


def test_run_whose_caller_is_killed_leaves_nothing(tmp_path: Path) -> None:
    with run(tmp_path) as ended:
        ended.called.kill()
    ended.assert_nothing_left()
    assert gone_pid(ended.called.pid)
