"""What the processes of a run share is made once, and ends with the run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.support.nested import PYTEST
from tests.support.places import ROOT
from tests.support.processes import gone_pid
from tests.support.shared import FOLDER
from tests.support.waiting import lines_of

TEST = """
import subprocess
from tests.support.shared import run_pipe, shared
from tests.support.ssh.sessions import tie

def start(place):
    server = subprocess.Popen(["sleep", "600"], start_new_session=True)
    tie(server.pid, run_pipe())
    return server.pid

def test_it():
    with open("seen", "a") as seen:
        print(shared("server", start), file=seen)
"""


def test_the_first_process_that_needs_it_makes_it_and_it_outlives_that_one_but_not_the_run(tmp_path: Path) -> None:
    for name in ("test_one.py", "test_other.py"):
        (tmp_path / name).write_text(TEST)
    environment = {name: value for name, value in os.environ.items() if name != FOLDER}
    command = [
        *PYTEST,
        "-p",
        "tests.support.surroundings",
        "-p",
        "no:cacheprovider",
        "-n",
        "2",
        "--dist",
        "loadfile",
    ]
    said = subprocess.run(
        [*command, "-c", os.devnull, "--rootdir", tmp_path, tmp_path],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": str(ROOT)},
        check=False,
        capture_output=True,
        text=True,
    )
    assert said.returncode == 0, said.stdout + said.stderr
    one, other = map(int, lines_of(tmp_path / "seen"))
    assert one == other
    assert gone_pid(one)
