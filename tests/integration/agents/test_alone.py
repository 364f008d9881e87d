"""A run of the matrix that is told to end, or killed, leaves no process and no folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.docs.pages import ROOT
from tests.support.waiting import until

PROBE = """
import json, os, subprocess, sys, threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tests.tools.agents.alone import alone

def play():
    worker = subprocess.Popen(["sleep", "300"], start_new_session=True)
    folder = Path(os.environ["TMPDIR"], "rt-stage")
    folder.mkdir()
    out = Path(sys.argv[1])
    Path(f"{out}.new").write_text(json.dumps({"worker": worker.pid, "folder": str(folder.parent)}))
    Path(f"{out}.new").rename(out)
    with ThreadPoolExecutor() as pool:
        pool.submit(worker.wait).result()
    return 0

sys.exit(alone(play))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_matrix_that_is_ended_ends_its_workers_and_removes_its_files(
    tmp_path: Path, number: signal.Signals
) -> None:
    out, probe = tmp_path / "out", tmp_path / "probe.py"
    probe.write_text(PROBE)
    run = subprocess.Popen(
        [sys.executable, probe, out],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        start_new_session=True,
    )
    until(out.exists, "its worker")
    told = json.loads(out.read_text())

    if number is signal.SIGINT:
        os.killpg(run.pid, number)  # as a terminal does it
    else:
        run.send_signal(number)

    assert run.wait(60) == (-number if number is signal.SIGKILL else 2)
    until(lambda: not psutil.pid_exists(told["worker"]), "the worker's end")
    until(lambda: not Path(told["folder"]).exists(), "the folder's end")
