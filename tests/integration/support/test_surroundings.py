"""The suite runs in the same surroundings, whoever starts it; see `tests.support.surroundings`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import ROOT
from tests.support.nested import PYTEST
from tests.support.surroundings import environment
from tests.support.waiting import until

ODD = {
    "TERM": "dumb",
    "LANG": "de_DE.ISO-8859-1",
    "LC_ALL": "tr_TR.UTF-8",
    "TZ": "Asia/Kathmandu",
    "COLUMNS": "20",
    "LINES": "3",
    "NO_COLOR": "1",
    "FORCE_COLOR": "1",
    "HOME": "/nowhere",
    "TMPDIR": "/nowhere",
    "XDG_CONFIG_HOME": "/nowhere",
    "PYTHONOPTIMIZE": "2",
    "PYTHONWARNINGS": "error",
    "PYTHONUTF8": "0",
    "PYTEST_ADDOPTS": "--no-such-option",
    "GIT_DIR": "/nowhere",
    "GIT_CONFIG_GLOBAL": "/nowhere",
    "ANTHROPIC_API_KEY": "sk-ant-of-the-caller",
    "CLAUDE_CONFIG_DIR": "/nowhere",
    "OPENAI_API_KEY": "sk-of-the-caller",
    "CODEX_HOME": "/nowhere",
    "GEMINI_API_KEY": "of-the-caller",
    "GOOGLE_API_KEY": "of-the-caller",
    "RUNTURN_BROKER_URL": "redis://nowhere",
    "OTEL_EXPORTER_OTLP_ENDPOINT": "http://nowhere",
    "SSH_AUTH_SOCK": "/nowhere",
    "MAKEFLAGS": "-n",
    "https_proxy": "http://nowhere:1",
}
PROBE = """
import json, os, signal, sys

def test_probe(tmp_path):
    umask = os.umask(0o22)
    facts = {"umask": umask, "optimised": sys.flags.optimize, "tmp_path": str(tmp_path)}
    facts |= {"interrupt": signal.getsignal(signal.SIGINT) is signal.default_int_handler}
    with open(OUT + ".new", "w") as out:
        json.dump(facts | {"environment": dict(os.environ)}, out)
    os.rename(OUT + ".new", OUT)
    if WAITS:
        signal.pause()
"""


class Run:
    """A run of the suite that has one test, started from odd surroundings."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.out = folder / "out"

    def start(self, *options: str, waits: bool = False) -> subprocess.Popen[bytes]:
        """Start it as a shell starts jobs in the background: without a Ctrl-C."""
        probe = self.folder / "test_probe.py"
        probe.write_text(f"OUT, WAITS = {str(self.out)!r}, {waits}\n{PROBE}")
        return subprocess.Popen(
            [*PYTEST, "-c", ROOT / "pyproject.toml", *options, probe],
            cwd=ROOT,
            env={"PATH": os.environ["PATH"], **ODD},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            umask=0o077,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),  # noqa: PLW1509  # no thread runs
        )

    def told(self) -> dict[str, Any]:
        """What its test has seen."""
        return json.loads(self.out.read_text())


@pytest.fixture
def suite(tmp_path: Path) -> Iterator[Run]:
    yield Run(tmp_path)


@pytest.mark.parametrize("options", [(), ("-n", "1")], ids=["alone", "workers"])
def test_nothing_of_the_callers_surroundings_gets_to_a_test(suite: Run, options: tuple[str, ...]) -> None:
    assert suite.start(*options).wait(60) == 0
    seen = suite.told()
    folder = Path(seen["environment"]["TMPDIR"])
    expected = environment({"PATH": os.environ["PATH"]}, folder)
    own = {name: value for name, value in seen["environment"].items() if not name.startswith("PYTEST_")}
    assert own == expected
    assert (seen["umask"], seen["optimised"], seen["interrupt"]) == (0o022, 0, True)
    assert seen["tmp_path"].startswith(f"{folder}/")
    assert not folder.exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_run_that_is_told_to_end_leaves_nothing(suite: Run, number: signal.Signals) -> None:
    process = suite.start(waits=True)
    until(suite.out.exists, "the test")
    process.send_signal(number)
    assert process.wait(60) == pytest.ExitCode.INTERRUPTED
    assert not Path(suite.told()["environment"]["TMPDIR"]).exists()


def test_what_the_suite_takes_is_where_programs_are_and_how_strict_it_is(tmp_path: Path) -> None:
    taken = {"PATH": "/bin", "CI": "true", "OUTAGE_S": "30", "KILLS": "20"}
    caller: Mapping[str, str] = {**taken, **ODD}
    given = environment(caller, tmp_path)
    assert {name for name, value in given.items() if caller.get(name) == value} == taken.keys()
