"""`runturn transcript`: what a turn did, from the archive alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from adapters.errors import TurnCancelled
from adapters.protocol.request import TurnRequest
from ops.ledger import Ledger, TranscriptSource
from ops.settings.state_dir import StateDir
from ops.transcripts import Archive, compose, read_lines
from tests.integration.cli.conftest import Cli
from workers.results import refused

SETTLED_AT = 1_763_812_800.0
PLACE = {"agent": "scripted", "host": "build1", "agent_version": None}
EVENTS = (
    {"seq": 1, "at": 1.0, "event": "attempt_started", "attempt": 1, **PLACE},
    {"seq": 2, "at": 2.0, "event": "text", "text": "I will \x1b[2J look.", "subagent": False},
    {
        "seq": 3,
        "at": 3.0,
        "event": "attempt_ended",
        "attempt": 1,
        "error_kind": "overloaded",
        "message": "529",
        "retry_at": 13.0,
    },
    {"seq": 4, "at": 13.0, "event": "attempt_started", "attempt": 2, **PLACE},
    {"seq": 5, "at": 14.0, "event": "text", "text": "Here it is.", "subagent": False},
    {
        "seq": 6,
        "at": 15.0,
        "event": "attempt_ended",
        "attempt": 2,
        "error_kind": "turn_failed",
        "message": "exit 1",
        "retry_at": None,
    },
    {"seq": 7, "at": 15.5, "event": "turn_settled", "status": "failed", "error_kind": "turn_failed"},
)
SOURCE = TranscriptSource(
    turn_id="t1",
    agent="scripted",
    host="build1",
    session_id="s1",
    attempt=2,
    created_at=0.0,
    settled_at=SETTLED_AT,
    status="failed",
    error_kind="turn_failed",
    events=tuple(json.dumps(event).encode() for event in EVENTS),
    stderr={2: b"trouble\n"},
)
SHOWN = """\
▸ scripted on build1, attempt 1
I will \N{REPLACEMENT CHARACTER}[2J look.
  ↻ overloaded: 529 — retry in 10.0 s
▸ scripted on build1, attempt 2
Here it is.
stderr of attempt 2:
trouble
15.5 s · failed
turn_failed: exit 1
"""


@pytest.fixture
def archive(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Archive:
    """An archive with one transcript, that the command knows."""
    monkeypatch.setenv("RUNTURN_TRANSCRIPTS_URL", str(tmp_path / "archive"))
    archive = Archive.at(str(tmp_path / "archive"))
    archive.write("t1", SETTLED_AT, compose(SOURCE))
    return archive


@pytest.fixture
def shown(cli: Cli, archive: Archive) -> Cli:
    """The command line, after the settings it needs were made: `cli` forgets those of before."""
    return cli


def test_turn_is_shown_as_it_went(shown: Cli) -> None:
    assert shown("transcript", "t1") == (0, SHOWN, "")


def test_raw_is_what_is_stored(shown: Cli, archive: Archive) -> None:
    said = shown("transcript", "t1", "--raw")
    assert (said.status, said.err) == (0, "")
    assert said.out.encode().splitlines() == read_lines(archive.read("t1") or b"")


def test_turn_that_the_archive_does_not_have(shown: Cli, tmp_path: Path) -> None:
    said = shown("transcript", "../t2")
    assert (said.status, said.out) == (2, "")
    assert (
        said.err
        == f"runturn: there is no transcript of ../t2 at {tmp_path}/archive; the ledger has no such turn\n"
    )
    with Ledger.open(StateDir.open(tmp_path / "state").ledger_url) as ledger:
        for turn_id in ("t3", "t4"):
            ledger.queue.submit_many([TurnRequest(turn_id=turn_id, prompt="x", workspace="/")], 1.0)
        ledger.queue.settle_unclaimed("t4", refused("t4", TurnCancelled("by the test")), 2.0)
    assert "turn t3 has not ended yet; see: runturn watch t3" in shown("transcript", "t3").err
    assert "if it has just ended, try again; for its events: runturn watch t4" in shown("transcript", "t4").err


def test_damaged_transcript_and_archive_that_is_away(
    shown: Cli, archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.write("t1", SETTLED_AT, b"damaged")
    said = shown("transcript", "t1")
    assert (said.status, said.out) == (3, "")
    assert "damaged" in said.err
    (tmp_path / "mount").write_text("no directory")
    monkeypatch.setenv("RUNTURN_TRANSCRIPTS_URL", str(tmp_path / "mount" / "archive"))
    said = shown("transcript", "t1")
    assert (said.status, said.out) == (3, "")
    assert said.err == f"runturn: transcripts at {tmp_path}/mount/archive: Not a directory\n"


def test_without_an_archive_it_says_where_else_to_look(shown: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RUNTURN_TRANSCRIPTS_URL")
    said = shown("transcript", "t1")
    assert (said.status, said.out) == (2, "")
    assert "RUNTURN_TRANSCRIPTS_URL is not set" in said.err
    assert "runturn watch t1" in said.err


def test_url_of_no_file_system(shown: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNTURN_TRANSCRIPTS_URL", "nonsense://x")
    said = shown("transcript", "t1")
    assert (said.status, said.out) == (2, "")
    assert said.err.startswith(
        "runturn: RUNTURN_TRANSCRIPTS_URL: transcripts_url: file system 'nonsense' is not available"
    )


def test_doctor_finds_an_archive_that_cannot_be_written_and_what_it_has_yet_to_get(
    shown: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check() -> tuple[bool, str]:
        checks = {found["name"]: found for found in shown("doctor", "--json").document["checks"]}
        return checks["transcripts"]["ok"], checks["transcripts"]["detail"]

    assert check() == (True, f"{tmp_path}/archive: 0 overdue")
    with Ledger.open(StateDir.open(tmp_path / "state").ledger_url) as ledger:
        ledger.queue.submit_many([TurnRequest(turn_id="t1", prompt="x", workspace="/")], 1.0)
        ledger.queue.settle_unclaimed("t1", refused("t1", TurnCancelled("by the test")), 2.0)
    assert check() == (False, f"{tmp_path}/archive: 1 overdue")
    assert [path.name for path in (tmp_path / "archive").iterdir()] == ["2025-11-22"]  # it leaves nothing
    monkeypatch.setenv("RUNTURN_TRANSCRIPTS_URL", str(tmp_path / "missing" / "archive"))
    assert check() == (False, f"transcripts at {tmp_path}/missing/archive: No such file or directory")
