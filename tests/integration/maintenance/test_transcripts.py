"""What a turn did is in the archive when it has ended, whatever became of its worker or of the archive."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from adapters.command import Command
from adapters.contract import Session
from adapters.errors import TurnCancelled
from adapters.protocol.request import TurnRequest
from adapters.protocol.result import TurnResult
from adapters.registry import Registry
from adapters.replay_agent import ReplayAgent
from ops.errors import ArchiveUnavailable
from ops.transcripts import Archive, read_lines
from tests.support.fleets.fleet import Fleet
from tests.support.fleets.site import Killed, Site, claude_code
from tests.support.waiting import until
from tests.system.test_crash_points import Death
from workers.context import WorkerContext
from workers.maintenance import transcripts
from workers.maintenance.transcripts import TranscriptArchiver
from workers.results import refused
from workers.turn.run import RunTurn
from workers.turn.stderr import _BYTES, _CUT, _MARGIN_BYTES, kept

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")

DAY_S = 86_400.0
SECRET = "ghp-90c2e7b1d5f8a3"  # none of another file's: an agent here shows it to all


class Loud(ReplayAgent):
    """The agent `scripted`, which says what the variable SAY holds on stderr."""

    def build(self, request: TurnRequest, session: Session) -> Command:
        command = super().build(request, session)
        say = ("sh", "-c", 'eval "$SAY" >&2; exec "$@"', "sh")
        return replace(command, argv=(*say, *command.argv))


class Office(Site):
    """A site with an archive."""

    def __init__(self, root: Path, url: str) -> None:
        super().__init__(root)
        self.archive = Archive.at(url)
        self._registry = Registry([claude_code(), Loud(claude_code())])
        self.say = "echo trouble with $GITHUB_TOKEN"

    def worker(self, hook: Any = lambda _: None) -> WorkerContext:
        environ: Mapping[str, str] = {"SAY": self.say, "GITHUB_TOKEN": SECRET}
        return replace(super().worker(hook), archive=self.archive, environ=environ, rng=Random(7))

    def queue(self, **fields: Any) -> str:
        return super().queue(env=["GITHUB_TOKEN", "SAY"], **fields)

    async def round(self) -> None:
        """What a worker does now and then, a while later."""
        self.later += 61
        await TranscriptArchiver(self.worker(), self.archive).make_round()

    def stored(self, turn_id: str) -> list[dict[str, Any]]:
        """The transcript; nothing: there is none."""
        found = self.archive.read(turn_id)
        return [] if found is None else [json.loads(line) for line in read_lines(found)]


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    office = Office(tmp_path, f"memory://{secrets.token_hex(8)}")
    yield office
    office.close()


def names(transcript: list[dict[str, Any]]) -> list[str]:
    return [line["event"] for line in transcript]


def stderr(transcript: list[dict[str, Any]]) -> dict[int, str]:
    return {line["attempt"]: line["text"] for line in transcript if line["event"] == "stderr"}


def test_transcript_has_all_events_and_the_stderr_of_all_attempts_without_secrets(
    office: Office, recording: Path
) -> None:
    office.say = "echo trouble with $GITHUB_TOKEN; sleep 0.$RANDOM"
    silent = ["{}", '{"after_ms":600000}']
    turn_id = office.queue(options={"lines": silent}, max_attempts=2, stall_timeout_ms=300)
    result = asyncio.run(office.finish(turn_id))
    assert (result.attempts, office.stored(turn_id)) == (2, [])
    asyncio.run(office.round())
    stored = office.stored(turn_id)
    assert (stored[0]["event"], stored[0]["turn_id"], stored[0]["error_kind"]) == (
        "transcript",
        turn_id,
        "turn_stalled",
    )
    events = [line for line in stored if "seq" in line]
    assert [json.dumps(event) for event in events] == [
        json.dumps(json.loads(line)) for line in office.events(turn_id)
    ]
    assert names(events)[-1] == "turn_settled"
    assert stderr(stored) == dict.fromkeys((1, 2), "trouble with [redacted:GITHUB_TOKEN]\n")
    assert office.ledger.transcripts.unarchived(office.now()) == []


@pytest.mark.parametrize(
    "point",
    [
        "before queue.settle",
        "after queue.settle",
        "after transcripts.keep_stderr",
        "before transcripts.keep_stderr",
    ],
)
def test_worker_killed_around_the_settle_leaves_a_transcript_to_another_one(
    office: Office, recording: Path, point: str
) -> None:
    turn_id = office.queue(options={"recording": str(recording)})

    async def die() -> None:
        with pytest.raises(Killed):
            await office.work(turn_id, Death(point))
        if office.ledger.reports.result(turn_id) is None:
            await office.finish(turn_id)
        await office.round()

    asyncio.run(die())
    stored = office.stored(turn_id)
    assert names(stored).count("turn_settled") == 1
    assert stderr(stored) == {1: "trouble with [redacted:GITHUB_TOKEN]\n"}


def test_worker_killed_between_archive_and_ledger_has_it_written_once_more_as_it_was(
    office: Office, recording: Path
) -> None:
    turn_id = office.queue(options={"recording": str(recording)})

    async def die() -> None:
        await office.finish(turn_id)
        office.later += 61
        with pytest.raises(Killed):
            await TranscriptArchiver(
                office.worker(Death("before transcripts.archived")), office.archive
            ).make_round()
        first = office.archive.read(turn_id)
        assert first is not None
        await office.round()
        assert office.archive.read(turn_id) == first

    asyncio.run(die())
    assert office.ledger.transcripts.unarchived(office.now()) == []


def test_turns_without_events_have_no_transcript_and_are_looked_at_once(office: Office) -> None:
    turn_id = office.queue(options={"lines": ["{}"]})
    office.ledger.queue.settle_unclaimed(turn_id, refused(turn_id, TurnCancelled("while it waited")), office.now())
    asyncio.run(office.round())
    assert office.ledger.transcripts.unarchived(office.now()) == []
    assert office.stored(turn_id) == []


def test_archive_that_is_away_neither_delays_a_turn_nor_loses_its_transcript(
    tmp_path: Path, recording: Path
) -> None:
    mount = tmp_path / "mount"
    office = Office(tmp_path, str(mount / "turns"))
    turn_ids = [office.queue(options={"recording": str(recording)}) for _ in range(3)]

    async def go_on() -> None:
        for turn_id in turn_ids:
            await office.finish(turn_id)
        for _ in range(2):
            with pytest.raises(ArchiveUnavailable):
                await office.round()
        # Nothing is forgotten meanwhile, however long that takes.
        forgotten = office.ledger.retention.forget(office.now() + DAY_S, office.now() + DAY_S, archiving=True)
        assert (forgotten.details, forgotten.turns) == (0, 0)
        mount.mkdir()
        await office.round()

    asyncio.run(go_on())
    for turn_id in turn_ids:
        assert "turn_settled" in names(office.stored(turn_id))
    office.close()


class Hanging(Archive):
    """An archive that does not answer until it is told to."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.answers = threading.Event()
        self.calls = 0

    def write(self, turn_id: str, settled_at: float, transcript: bytes) -> None:
        self.calls += 1
        assert self.answers.wait(60)
        super().write(turn_id, settled_at, transcript)


def test_archive_that_hangs_holds_up_nothing_and_is_not_asked_twice(
    office: Office, recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transcripts, "_PATIENCE_S", 0.2)
    archive = Hanging(f"memory://{secrets.token_hex(8)}")
    turn_ids = [office.queue(options={"recording": str(recording)}) for _ in range(2)]

    async def hang() -> None:
        for turn_id in turn_ids:
            await office.finish(turn_id)
        office.later += 61
        archivist = TranscriptArchiver(office.worker(), archive)
        while not archive.calls:  # it may not have been asked yet
            with pytest.raises(ArchiveUnavailable, match="no answer for"):
                await archivist.make_round()
        with pytest.raises(ArchiveUnavailable, match="still no answer to"):
            await archivist.make_round()
        assert archive.calls == 1
        archive.answers.set()
        async with asyncio.timeout(120):
            while office.ledger.transcripts.unarchived(office.now()):
                with contextlib.suppress(ArchiveUnavailable):  # the first call may be about to return
                    await archivist.make_round()
                await asyncio.sleep(0.01)
        assert archive.calls == 2

    asyncio.run(hang())
    assert all(archive.read(turn_id) for turn_id in turn_ids)


def test_faulty_turn_does_not_hold_up_the_others(
    office: Office, recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faulty, *others = (office.queue(options={"recording": str(recording)}) for _ in range(3))
    compose = transcripts.compose

    def choosy(source: Any) -> bytes:
        if source.turn_id == faulty:
            raise ValueError("a fault of ours")
        return compose(source)

    monkeypatch.setattr(transcripts, "compose", choosy)

    async def go_on() -> None:
        for turn_id in (faulty, *others):
            await office.finish(turn_id)
        await office.round()

    asyncio.run(go_on())
    assert [turn_id for _, turn_id in office.ledger.transcripts.unarchived(office.now())] == [faulty]


def test_old_transcripts_are_removed(office: Office) -> None:
    now = office.now()
    for age_days in (0, 399, 402):
        office.archive.write(f"t{age_days}", now - age_days * DAY_S, b"x")
    asyncio.run(TranscriptArchiver(office.worker(), office.archive).clean())
    assert [office.archive.read(f"t{age_days}") is None for age_days in (0, 399, 402)] == [False, False, True]


def test_end_of_a_long_stderr_is_kept_and_no_half_secret(office: Office) -> None:
    # The reading begins somewhere in the midst of the secrets.
    office.say = (
        'head -c 3000000 /dev/zero | tr "\\0" x | sed "s/x/$GITHUB_TOKEN/g" | tail -c 2000003; echo the end'
    )
    turn_id = office.queue(options={"lines": ["{}"]})
    assert isinstance(asyncio.run(office.finish(turn_id)), TurnResult)
    asyncio.run(office.round())
    (text,) = stderr(office.stored(turn_id)).values()
    assert text.startswith(_CUT)
    assert text.endswith("the end\n")
    assert len(text) <= _BYTES + len(_CUT)
    for piece in (SECRET, SECRET[4:], SECRET[:-4]):
        assert piece not in text


@pytest.mark.parametrize(
    ("length", "cut", "left"),
    [
        (10, False, 10),
        (_BYTES, False, _BYTES),
        (_BYTES + 9, False, _BYTES),
        (_BYTES + _MARGIN_BYTES, True, _BYTES),
    ],
)
def test_stderr_is_kept_up_to_a_bound(length: int, cut: bool, left: int) -> None:
    text = kept("x" * length, cut=cut)
    assert len(text.removeprefix(_CUT)) == left
    assert text.startswith(_CUT) == (length > left or cut)


def test_without_an_archive_no_stderr_is_kept(tmp_path: Path, recording: Path) -> None:
    site = Site(tmp_path)
    turn_id = site.queue(options={"recording": str(recording)})
    asked: list[str] = []
    asyncio.run(RunTurn(site.worker(asked.append), site.claim(turn_id)).drive())
    assert "before queue.settle" in asked
    assert "before transcripts.keep_stderr" not in asked
    site.close()


def test_transcript_is_there_when_the_turn_has_ended(tmp_path: Path, recording: Path) -> None:
    archive = tmp_path / "archive"
    with Fleet(tmp_path, transcripts_url=str(archive)) as fleet:
        fleet.start_worker()
        fleet.run(fleet.recorded(recording, turn_id="t1"))
        file = until(lambda: list(archive.rglob("t1.jsonl.gz")), "the transcript")[0]
        assert [json.loads(line) for line in read_lines(file.read_bytes())[1:]] == fleet.events("t1")


def test_worker_writes_what_it_has_settled_at_once_and_what_was_left_in_its_rounds(
    tmp_path: Path, recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transcripts, "_AGE_S", 0.0)
    monkeypatch.setattr(transcripts, "_ROUND_S", 0.3)
    mount = tmp_path / "mount"
    mount.mkdir()
    office = Office(tmp_path, str(mount / "turns"))
    first, second, third = (office.queue(options={"recording": str(recording)}) for _ in range(3))

    async def work() -> None:
        archivist = TranscriptArchiver(office.worker(), office.archive)
        working = asyncio.create_task(archivist.run())
        for turn_id, away in ((first, False), (second, True), (third, True)):
            if away and mount.exists():
                mount.rename(tmp_path / "unmounted")
            await office.finish(turn_id)
            archivist.settled(turn_id)
            if not away:
                await asyncio.to_thread(until, lambda: office.stored(first), "its transcript")
        await asyncio.to_thread(until, lambda: archivist._away, "it to notice")
        (tmp_path / "unmounted").rename(mount)
        await asyncio.to_thread(until, lambda: not archivist._away, "it to notice that, too")
        working.cancel()

    asyncio.run(work())
    assert all("turn_settled" in names(office.stored(turn_id)) for turn_id in (first, second, third))
    office.close()
