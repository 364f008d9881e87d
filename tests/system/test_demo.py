"""The demo itself: what it claims holds, and it leaves nothing behind, however it ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tests.fakes.model_api import Hold, ModelApi, Reply, Script, Text, Usage, replies
from tests.fakes.model_api.cli import claude_environment
from tests.support.places import ROOT
from tests.support.waiting import until

PLAIN = Reply((Text("done"),), Usage(10, 5))

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of somebody with an empty home; its temporary directory has to be empty in the end."""
    with tempfile.TemporaryDirectory(prefix="rt-") as temporary:  # short: a socket's path has to fit
        yield {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TMPDIR": temporary}
        until(lambda: not _processes(temporary), "the demo's processes to be gone")
        assert list(Path(temporary).iterdir()) == []


def _processes(directory: str) -> list[psutil.Process]:
    """Those of the demo: they all work below its directory, or are told to."""
    found = []
    for process in psutil.process_iter():
        try:
            if any(directory in word for word in (*process.cmdline(), *process.environ().values())):
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def _demo(environment: dict[str, str], *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.tools.demo", *arguments],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_demo_books_what_was_billed(bare: dict[str, str]) -> None:
    demo = _demo(bare)
    said, _ = demo.communicate()
    assert demo.returncode == 0, said
    assert said.count("✓ completed in") == 3
    assert "→ Agent Count the files" in said
    assert "API: 429" in said
    assert re.fullmatch(r"billed ([\d,]{5,}) tokens = booked \1 tokens", said.splitlines()[-1])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_demo_leaves_nothing_behind(bare: dict[str, str], number: signal.Signals) -> None:
    demo = _demo(bare)
    assert demo.stdout is not None
    assert any("session" in line for line in demo.stdout)
    demo.send_signal(number)
    said = demo.stdout.read()
    assert demo.wait() == 130
    assert said.endswith("interrupted; everything that was started has been stopped\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_turn_of_an_interrupted_demo_is_cancelled(
    bare: dict[str, str], tmp_path: Path, number: signal.Signals
) -> None:
    with ModelApi(Script("1", (replace(PLAIN, hold=Hold("the answer")),), keyword="greeting")) as api:
        demo = _demo({**claude_environment(api.base_url, tmp_path), "TMPDIR": bare["TMPDIR"]}, "--live")
        api.gate("the answer").wait_until_reached(120)
        demo.send_signal(number)
        said, _ = demo.communicate()
    assert demo.returncode == 130
    assert "✗ cancelled" in said


def test_live_demo_uses_the_callers_login(bare: dict[str, str], tmp_path: Path) -> None:
    scripts = (
        Script("1", (PLAIN,), keyword="greeting"),
        Script("2", (PLAIN,), keyword="survey"),
        Script("3", (PLAIN,), keyword="limit"),
    )
    with ModelApi(*scripts) as api:
        demo = _demo({**claude_environment(api.base_url, tmp_path), "TMPDIR": bare["TMPDIR"]}, "--live")
        said, _ = demo.communicate()
        assert demo.returncode == 0, said
        assert {name for name, bill in api.bills().items() if bill.requests} == {"1", "2", "3"}
    assert said.count("✓ completed in") == 3


def test_live_demo_that_fails_says_so(bare: dict[str, str], tmp_path: Path) -> None:
    with ModelApi(Script("refused", tuple(replies.unauthorized() for _ in range(9)))) as api:
        environment = {**claude_environment(api.base_url, tmp_path, max_retries=0), "TMPDIR": bare["TMPDIR"]}
        demo = _demo(environment, "--live")
        said, _ = demo.communicate()
    assert demo.returncode == 1
    assert "authentication_failed" in said


def test_live_demo_without_a_login_says_what_to_do(bare: dict[str, str]) -> None:
    demo = _demo(bare, "--live")
    said, _ = demo.communicate()
    assert demo.returncode == 1
    assert said.startswith("demo: LIVE=1 needs a login: run `")
    assert said.count("\n") == 1
