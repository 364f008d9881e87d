"""What hosts tell about spools that nobody cares for any more, and what they remove."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from adapters.command import SessionFiles
from remote.errors import SpawnRefused
from remote.host_queries import SpoolState, list_spools, read_session_files, remove_drafts
from remote.spool import Spool
from tests.support.ssh.laboratory import Lab, read_until

DAY = 86_400
FILES = SessionFiles("AGENT_HOME", ".agent", ("s1.jsonl",))


def aged(path: Path, seconds: int) -> Path:
    """Last written so long ago."""
    then = time.time() - seconds
    os.utime(path, (then, then))
    return path


def place(spool: Spool) -> Path:
    return Path(spool.path)


def contents(spool: Spool) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in place(spool).iterdir() if file.is_file()}


async def listed(lab: Lab) -> dict[str, SpoolState]:
    return {state.id: state for state in await list_spools(lab.host, str(lab.root))}


async def test_a_spools_age_counts_from_the_last_heartbeat(any_lab: Lab) -> None:
    followed, left = (any_lab.spool() for _ in range(2))
    for spool in (followed, left):
        await any_lab.run(any_lab.sh("true"), spool)
        await any_lab.nothing_left(spool)
    aged(place(left) / "heartbeat", 3 * DAY)
    ages = {name: state.age_s for name, state in (await listed(any_lab)).items()}
    assert ages[followed.id] in range(60)
    assert ages[left.id] in range(3 * DAY, 3 * DAY + 60)
    await any_lab.run(None, left)
    assert (await listed(any_lab))[left.id].age_s in range(60)


async def test_looking_changes_nothing_for_another_machine_that_shares_the_directory(any_lab: Lab) -> None:
    spool = any_lab.spool()
    async with any_lab.follow(spool, any_lab.sh("echo begun; sleep 60")) as turn:
        await read_until(turn, b"begun")
    assert (await listed(any_lab))[spool.id].alive
    ours = (place(spool) / "turn").read_text()
    lease, _, ladder = ours.split(maxsplit=2)
    (place(spool) / "turn").write_text(f"{lease} the-boot-of-another {ladder}")
    before = contents(spool)
    assert not (await listed(any_lab))[spool.id].alive
    assert contents(spool) == before
    (place(spool) / "turn").write_text(ours)


async def test_directories_that_could_be_no_spool_are_not_listed(any_lab: Lab) -> None:
    spool = any_lab.spool()
    await any_lab.run(any_lab.sh("true"), spool)
    for name in ("two words", "-dash", ".hidden", "line\nfeed"):
        (any_lab.root / name).mkdir()
        (any_lab.root / name / "turn").write_text("30 boot KILL:50\n")
    assert set(await listed(any_lab)) == {spool.id}


async def test_drafts_of_starts_that_were_cut_off_go_once_they_are_old(any_lab: Lab) -> None:
    await remove_drafts(any_lab.host, str(any_lab.root), DAY)
    spool = any_lab.spool()
    await any_lab.run(any_lab.sh("true"), spool)
    for name in (".old.1.Ab3dEf", ".young.1.Ab3dEf", ".old-but-no.draft1"):
        (any_lab.root / name).mkdir()
        if "draft" not in name:
            (any_lab.root / name / "events").touch()
        if "old" in name:
            aged(any_lab.root / name, 2 * DAY)
    aged(place(spool), 2 * DAY)
    await remove_drafts(any_lab.host, str(any_lab.root), DAY)
    kept = {entry.name for entry in any_lab.root.iterdir()}
    assert kept == {spool.id, ".young.1.Ab3dEf", ".old-but-no.draft1"}


async def test_session_files_are_not_read_beside_a_removal_that_took_their_sizes(any_lab: Lab) -> None:
    spool, home = any_lab.spool(), any_lab.home / ".agent"
    home.mkdir()
    (home / "s1.jsonl").write_text("an earlier turn's\n")
    await any_lab.run(any_lab.sh('echo new >>"$1/s1.jsonl"', str(home), session_files=FILES), spool)
    assert await read_session_files(any_lab.host, spool, FILES) == b"new\n"
    (place(spool) / "session_sizes").unlink()
    with pytest.raises(SpawnRefused) as refusal:
        await read_session_files(any_lab.host, spool, FILES)
    assert refusal.value.code == "spool_missing"
