"""The archive of transcripts: what is in a file, where it lies, when it goes; and what the ledger keeps for it."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
import sqlalchemy as sa

from ops.errors import ArchiveUnavailable, SettingsError, StaleClaim
from ops.ledger import Forgotten, Ledger, TranscriptSource
from ops.transcripts import Archive, compose, read_lines
from tests.support.claiming import claim_turn
from tests.support.ledger.accounts import a_result, a_usage, an_end, begun, claimed

DAY_S = 86_400.0
NOON = datetime(2026, 11, 22, 12, 0, tzinfo=UTC).timestamp()
SOURCE = TranscriptSource(
    turn_id="t1",
    agent="scripted",
    host="build1",
    session_id="s1",
    attempt=2,
    created_at=NOON - 60,
    settled_at=NOON,
    status="completed",
    error_kind=None,
    events=(b'{"seq":1,"at":1.0,"event":"text"}', b'{"seq":2,"at":2.0,"event":"turn_settled"}'),
    stderr={2: b"caf\xc3\xa9 \xff\n"},
)


@pytest.fixture(params=["memory", "directory"])
def archive(request: pytest.FixtureRequest, tmp_path: Path) -> Archive:
    if request.param == "memory":
        return Archive.at(f"memory://{secrets.token_hex(8)}/turns")
    return Archive.at(str(tmp_path / "turns"))


def test_transcript_is_json_lines_that_any_tool_reads(tmp_path: Path) -> None:
    (tmp_path / "t.gz").write_bytes(compose(SOURCE))
    text = subprocess.run(["gzip", "-dc", tmp_path / "t.gz"], capture_output=True, check=True).stdout
    lines = [json.loads(line) for line in text.splitlines()]
    assert [line["event"] for line in lines] == ["transcript", "text", "turn_settled", "stderr"]
    assert (lines[0]["turn_id"], lines[0]["status"], lines[0]["attempts"]) == ("t1", "completed", 2)
    assert (lines[3]["attempt"], lines[3]["text"]) == (2, "caf\u00e9 \ufffd\n")
    assert tuple(text.splitlines()[1:3]) == SOURCE.events  # as the ledger has them, byte for byte
    assert read_lines(compose(SOURCE)) == text.splitlines()
    assert compose(SOURCE) == compose(SOURCE)


@pytest.mark.parametrize("damage", [b"", b"no gzip", compose(SOURCE)[:-9], compose(SOURCE)[:20] + b"\0" * 40])
def test_damaged_transcript_is_told(damage: bytes) -> None:
    with pytest.raises(ArchiveUnavailable, match="damaged"):
        read_lines(damage)


def test_what_was_written_is_read_with_and_without_its_date(archive: Archive) -> None:
    assert archive.read("t1", NOON) is archive.read("t1") is None
    archive.write("t1", NOON, b"first")
    archive.write("t1", NOON, b"again")
    archive.write("t2", NOON + DAY_S, b"other")
    assert archive.read("t1", NOON) == archive.read("t1") == b"again"
    assert archive.read("t2") == b"other"
    assert archive.read("t2", NOON) is None


def test_old_days_are_removed_and_no_others(archive: Archive) -> None:
    assert archive.remove_before(NOON) == 0  # there is nothing at all yet
    for age in range(5):
        archive.write(f"t{age}", NOON - age * DAY_S, b"x")
    assert archive.remove_before(NOON - 2 * DAY_S) == 2  # noon of the day before yesterday: that day is not over
    assert [archive.read(f"t{age}") for age in range(5)] == [b"x", b"x", b"x", None, None]
    assert archive.remove_before(NOON - 2 * DAY_S) == 0


def test_files_lie_in_small_directories_of_their_day_and_nobody_else_reads_them(tmp_path: Path) -> None:
    root = tmp_path / "turns"
    Archive.at(str(root)).write("issue-4711", NOON, compose(SOURCE))
    (file,) = (path for path in root.rglob("*") if path.is_file())
    assert file.relative_to(root).as_posix() == "2026-11-22/7b/issue-4711.jsonl.gz"
    assert root.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    "turn_id", ["../../escaped", "/etc/escaped", "..", "a*b?[c]", "x" * 120, "a\nb", "\udcff"]
)
def test_no_name_of_a_turn_leaves_the_archive(tmp_path: Path, turn_id: str) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    archive = Archive.at(str(tmp_path / "a" / "b" / "turns"))
    archive.write("t1", NOON, b"innocent")
    archive.write(turn_id, NOON, b"x")
    assert archive.read(turn_id) == b"x"
    assert archive.read("t1") == b"innocent"
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 2
    assert {path.parent.parent for path in files} == {tmp_path / "a" / "b" / "turns" / "2026-11-22"}


def test_write_that_fails_leaves_the_former_one_and_no_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = Archive.at(str(tmp_path / "turns"))
    archive.write("t1", NOON, b"first")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ArchiveUnavailable, match=f"{tmp_path}/turns: No space left on device"):
        archive.write("t1", NOON, b"second")
    assert archive.read("t1") == b"first"
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 1


def test_archive_that_is_away_says_so_and_is_there_again_later(tmp_path: Path) -> None:
    (tmp_path / "mount").write_text("no directory")
    archive = Archive.at(str(tmp_path / "mount" / "turns"))
    for call in (
        lambda: archive.write("t1", NOON, b"x"),
        lambda: archive.read("t1"),
        lambda: archive.remove_before(0),
    ):
        with pytest.raises(ArchiveUnavailable, match="Not a directory"):
            call()
    (tmp_path / "mount").unlink()
    with pytest.raises(ArchiveUnavailable, match="No such file"):
        archive.write("t1", NOON, b"x")  # a mount that is missing is not filled
    (tmp_path / "mount").mkdir()
    archive.write("t1", NOON, b"x")
    assert archive.read("t1") == b"x"


@pytest.mark.parametrize("url", ["nonsense://x", "s4://bucket", "simplecache::s4://bucket"])
def test_url_of_no_file_system_is_refused(url: str) -> None:
    with pytest.raises(SettingsError, match=r"RUNTURN_TRANSCRIPTS_URL: transcripts_url: file system '\w+' is not"):
        Archive.at(url)


def test_messages_show_no_password() -> None:
    assert Archive.at("ftp://me:hunter22@host/turns").name == "ftp://…@host/turns"


def settled(ledger: Ledger, turn_id: str, now: float, stderr: bytes = b"") -> None:
    claim = claimed(ledger, turn_id, now=now)
    begun(ledger, claim, f"spool-{turn_id}", now)
    ledger.events.append(claim, 1, [b'{"seq":1}'])
    if stderr:
        ledger.transcripts.keep_stderr(claim, 1, stderr)
        ledger.transcripts.keep_stderr(claim, 1, stderr)  # as a successor does
    ledger.queue.settle(claim, a_result(turn_id, used=a_usage()), now, an_end())


def test_ledger_knows_what_the_archive_does_not_have(ledger: Ledger) -> None:
    for number in range(5):
        settled(ledger, f"t{number}", float(number), b"trouble")
    claimed(ledger, "running", now=0.0)
    first = ledger.transcripts.unarchived(3.0, limit=3)
    assert first == [(0.0, "t0"), (1.0, "t1"), (2.0, "t2")]
    assert ledger.transcripts.unarchived(3.0, first[-1], limit=3) == [(3.0, "t3")]
    source = ledger.transcripts.source("t0")
    assert source is not None
    expected = replace(
        SOURCE, turn_id="t0", agent="claude-code", host="local", session_id="session-1", attempt=1,
        created_at=0.0, settled_at=0.0, events=(b'{"seq":1}',), stderr={1: b"trouble"},
    )  # fmt: skip
    assert source == expected
    ledger.transcripts.archived("t0", 9.0)
    assert ledger.transcripts.source("t0") is ledger.transcripts.source("running") is None
    assert [turn_id for _, turn_id in ledger.transcripts.unarchived(9.0)] == ["t1", "t2", "t3", "t4"]


def test_nothing_is_forgotten_before_it_is_archived(ledger: Ledger) -> None:
    settled(ledger, "kept", 0.0, b"trouble")
    settled(ledger, "archived", 0.0, b"trouble")
    ledger.transcripts.archived("archived", 1.0)
    assert ledger.retention.forget(DAY_S, DAY_S, archiving=True) == Forgotten(details=1, turns=1)
    source = ledger.transcripts.source("kept")
    assert source is not None
    assert (source.events, source.stderr) == ((b'{"seq":1}',), {1: b"trouble"})
    # Who has no archive does not wait for one, and stderr goes with the events.
    assert ledger.retention.forget(DAY_S, 0.0) == Forgotten(details=1)
    assert ledger.transcripts.unarchived(9.0) == []


def test_stderr_of_a_turn_that_was_taken_over_is_refused(ledger: Ledger) -> None:
    former = claimed(ledger, "t1")
    claim_turn(ledger, "t1", "w2", 100.0, 10.0)
    with pytest.raises(StaleClaim):
        ledger.transcripts.keep_stderr(former, 1, b"late")


def test_unarchived_turns_are_found_by_index(sqlite_url: str) -> None:
    with Ledger.open(sqlite_url) as ledger:
        for number in range(20):
            settled(ledger, f"t{number}", float(number))
        statements: list[str] = []
        engine = ledger._database.engine
        sa.event.listen(
            engine, "before_cursor_execute", lambda _, __, statement, *___: statements.append(statement)
        )
        ledger.transcripts.unarchived(9.0)
        with engine.connect() as connection:
            plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statements[-1]}", (9.0, 0.0, "", 100, 0))
            text = " ".join(row[3] for row in plan)
        assert "USING INDEX turns_unarchived" in text, text
