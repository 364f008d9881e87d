"""`runturn history` and `runturn cost`: what they show of a ledger that is known, in a pipe and on a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from ops.ledger import Ledger
from ops.settings.state_dir import StateDir
from tests.integration.cli.conftest import Cli
from tests.support.ledger.accounts import a_request, a_usage, claimed, completed
from tests.support.places import ROOT

KEY = "ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a"
REST = "a1b2c3d-0000-4000-8000-000000000000"


@pytest.fixture
def ledger(cli: Cli, tmp_path: Path) -> Iterator[Ledger]:
    """One completed turn, a cancelled one, and one that waits."""
    with Ledger.open(StateDir.open(tmp_path / "state").ledger_url) as ledger:
        completed(ledger, f"1{REST}", a_usage(0.25), 1.0, labels={"team": "web", "project": "shop"})
        secret = a_request(f"2{REST}").model_copy(update={"prompt": f"push\nwith {KEY} and hunter22 {'x' * 90}"})
        ledger.queue.submit_many([secret], 2.0)
        ledger.queue.wait(claimed(ledger, f"3{REST}", now=3.0), 1e10, "structured_output_missing", 3.0, None)
        yield ledger


@pytest.mark.usefixtures("ledger")
def test_table_and_document_say_the_same(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUR_PASSWORD", "hunter22")
    document = cli("history", "--json").document
    listed = cli("history").out.splitlines()[1:]
    assert [row["status"] for row in document] == ["waiting", "queued", "completed"]
    assert [line.split()[:2] for line in listed] == [[row["turn_id"], row["status"]] for row in document]
    assert "state" not in document[0]
    assert document[2]["labels"] == {"project": "shop", "team": "web"}
    assert listed[2].rstrip().endswith("$0.2500  project=shop team=web  Fix the tests")
    redacted = "push with [redacted:key] and [redacted:OUR_PASSWORD]"
    for shown in (document[1]["prompt"], listed[1]):
        assert redacted in shown
        assert KEY not in shown and "hunter22" not in shown
    assert len(document[1]["prompt"]) <= 80


@pytest.mark.parametrize("width", [80, 100, 200])
@pytest.mark.usefixtures("ledger")
def test_table_fits_the_terminal(tmp_path: Path, width: int) -> None:
    lines = _on_a_terminal(tmp_path, width, "history")
    assert max(map(len, lines)) <= width
    head, waiting, queued, completed = lines
    assert {"turn", "status", "reason", "labels", "prompt"} <= set(head.split())
    assert [line.split()[0] for line in lines[1:]] == ["3a1b2c3d", "2a1b2c3d", "1a1b2c3d"]
    assert "structured_" in waiting
    assert "push with [redacted" in queued
    assert "project=s" in completed and "Fix the tests" in completed


def _on_a_terminal(home: Path, width: int, *arguments: str) -> list[str]:
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "HOME": str(home),
        "RUNTURN_STATE_DIR": str(home / "state"),
        "TERM": "xterm",
    }
    command = [sys.executable, "-m", "workers.__main__", *arguments]
    subprocess.run(command, env=environment, cwd=home, stdin=its, stdout=its, stderr=its, check=True)
    os.close(its)
    shown = os.read(ours, 65_536).decode()
    os.close(ours)
    return [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in shown.splitlines()]


def test_bill_has_a_total_in_which_each_turn_counts_once(cli: Cli, ledger: Ledger) -> None:
    completed(ledger, "both", a_usage(0.5), 4.0, labels={"team": "web", "project": "site"})
    lines = [line.split() for line in cli("cost", "--by", "label").out.splitlines()]
    assert [line[:2] for line in lines] == [
        ["label", "turns"], ["team=web", "2"], ["project=site", "1"], ["project=shop", "1"], ["total", "2"],
    ]  # fmt: skip
    assert lines[-1][2:] == ["200", "40", "6,000", "800", "$0.7500"]
    assert cli("cost", "--days", "1").err == "no usage\n"
    assert [row["key"] for row in cli("cost", "--json").document] == ["opus"]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("history", "no turns\n"),
        ("cost", "no usage\n"),
        ("budget list", "no budgets\n"),
        ("dead list", "no dead letters\n"),
    ],
)
def test_nothing_to_list_is_said(cli: Cli, command: str, said: str) -> None:
    assert cli(*command.split()) == (0, "", said)
    assert cli(*command.split(), "--json").document == []
