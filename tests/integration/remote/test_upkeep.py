from __future__ import annotations

import asyncio
import os
import shutil
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adapters.command import SessionFiles
from remote.errors import HostError, HostUnreachable, SpawnRefused
from remote.host_queries import (
    check_workspace,
    end_processes,
    free_bytes,
    list_spools,
    probe,
    read_session_files,
    read_stderr_tail,
    read_whole_session_files,
    remove_spool,
)
from remote.run import run_script
from remote.spool import Spool
from tests.support.processes import gone_pid
from tests.support.ssh.laboratory import Lab, drain, eventually, read_until
from tests.support.waiting import remove_spools

FILES = SessionFiles("AGENT_HOME", ".agent", ("projects/*/s1.jsonl", "projects/*/s1/sub-*.jsonl"))
APPEND = """
cd "$1/projects/p"
echo new >>s1.jsonl
mkdir s1
printf 'sub1\\n\\nsub2' >s1/sub-a.jsonl
"""


def lay_out(home: Path) -> None:
    (home / "projects" / "p").mkdir(parents=True)
    (home / "projects" / "p" / "s1.jsonl").write_text("old\n")
    (home / "projects" / "p" / "other.jsonl").write_text("not ours\n")


async def test_only_what_a_turn_added_to_its_session_files_is_read(any_lab: Lab) -> None:
    home, spool = any_lab.home / ".agent", any_lab.spool()
    lay_out(home)
    await any_lab.run(any_lab.sh(APPEND, str(home), session_files=FILES), spool)
    assert await read_session_files(any_lab.host, spool, FILES) == b"new\nsub1\nsub2\n"


@pytest.mark.parametrize("variable", ["AGENT_HOME", "HOME"])
async def test_session_files_are_looked_for_where_the_agent_writes_them(any_lab: Lab, variable: str) -> None:
    place = any_lab.folder / "a strange 'place'"
    home, spool = place if variable == "AGENT_HOME" else place / ".agent", any_lab.spool()
    lay_out(home)
    command = any_lab.sh(APPEND, str(home), session_files=FILES, env={variable: str(place)})
    await any_lab.run(command, spool)
    assert await read_session_files(any_lab.host, spool, FILES) == b"new\nsub1\nsub2\n"


async def test_session_files_may_not_exist_before_or_after_a_turn(any_lab: Lab) -> None:
    spool = any_lab.spool()
    await any_lab.run(any_lab.sh("true", session_files=FILES), spool)
    assert await read_session_files(any_lab.host, spool, FILES) == b""
    lay_out(any_lab.home / ".agent")
    assert await read_session_files(any_lab.host, spool, FILES) == b"old\n"


@pytest.mark.parametrize("variable", ["AGENT_HOME", "HOME", ""])
async def test_session_files_of_a_lost_spool_are_read_from_their_beginning(any_lab: Lab, variable: str) -> None:
    place = any_lab.folder / "a strange 'place'" if variable else any_lab.home
    home, spool = place if variable == "AGENT_HOME" else place / ".agent", any_lab.spool()
    lay_out(home)
    command = any_lab.sh(APPEND, str(home), session_files=FILES, env={variable: str(place)} if variable else {})
    await any_lab.run(command, spool)
    remove_spools(any_lab.root)
    assert await read_whole_session_files(any_lab.host, command, FILES) == b"old\nnew\nsub1\nsub2\n"
    shutil.rmtree(home)
    assert await read_whole_session_files(any_lab.host, command, FILES) == b""


async def test_a_spool_that_lost_its_word_of_where_session_files_are_counts_as_missing(any_lab: Lab) -> None:
    spool = any_lab.spool()
    lay_out(any_lab.home / ".agent")
    await any_lab.run(any_lab.sh("true", session_files=FILES), spool)
    (any_lab.root / spool.id / "session_root").unlink()
    with pytest.raises(SpawnRefused) as refusal:
        await read_session_files(any_lab.host, spool, FILES)
    assert refusal.value.code == "spool_missing"


async def test_everything_of_a_turn_without_a_spool_is_terminated(any_lab: Lab) -> None:
    lost, other = any_lab.spool(), any_lab.spool()
    stubborn = "trap '' TERM INT HUP; (setsid sleep 60 &); echo begun; while :; do sleep 1; done"
    for spool in (lost, other):
        async with any_lab.follow(spool, any_lab.sh(stubborn)) as turn:
            await read_until(turn, b"begun")
    remove_spools(any_lab.root / lost.id)
    await end_processes(any_lab.host, lost)
    assert not any_lab.marked(lost)
    assert any_lab.marked(other)


async def test_a_missing_spool_has_nothing_to_read(any_lab: Lab) -> None:
    spool = any_lab.spool()
    for question in (read_session_files(any_lab.host, spool, FILES), read_stderr_tail(any_lab.host, spool)):
        with pytest.raises(SpawnRefused, match=spool.path) as refusal:
            await question
        assert refusal.value.code == "spool_missing"


async def test_spools_are_listed_with_what_became_of_them(any_lab: Lab) -> None:
    assert await list_spools(any_lab.host, str(any_lab.root)) == []
    ended, running, killed = (any_lab.spool() for _ in range(3))
    await any_lab.run(any_lab.sh("true"), ended)
    for spool in (running, killed):
        async with any_lab.follow(spool, any_lab.sh("echo begun; sleep 60")) as turn:
            await read_until(turn, b"begun")
    any_lab.kill(killed, "supervisor", "watcher", "agent")
    await any_lab.nothing_left(ended)
    (any_lab.root / "not a spool").mkdir()
    found = {state.id: state for state in await list_spools(any_lab.host, str(any_lab.root))}
    assert {name: state.alive for name, state in found.items()} == {
        ended.id: False,
        running.id: True,
        killed.id: False,
    }
    assert all(state.age_s is not None and 0 <= state.age_s < 30 for state in found.values())


async def test_a_spool_is_removed_once_its_turn_has_ended_and_not_before(any_lab: Lab) -> None:
    spool = any_lab.spool()
    async with any_lab.follow(spool, any_lab.sh("echo begun; while [ ! -e go ]; do sleep 0.05; done")) as turn:
        await read_until(turn, b"begun")
        with pytest.raises(SpawnRefused) as refusal:
            await remove_spool(any_lab.host, spool)
        assert refusal.value.code == "spool_in_use"
        (any_lab.workspace / "go").touch()
        await drain(turn)
    await remove_spool(any_lab.host, spool)
    assert list(any_lab.root.iterdir()) == []
    await remove_spool(any_lab.host, spool)
    await any_lab.nothing_left(spool)


async def test_a_killed_turn_and_drafts_of_its_start_are_removed_with_its_spool(lab: Lab) -> None:
    spool = lab.spool()
    async with lab.follow(spool, lab.sh("echo begun; sleep 60")) as turn:
        await read_until(turn, b"begun")
    lab.kill(spool, "supervisor", "watcher", "agent")
    for name in (f".{spool.id}.Ab3dEf", f".{spool.id}2.Ab3dEf"):
        (lab.root / name).mkdir()
    await remove_spool(lab.host, spool)
    assert [place.name for place in lab.root.iterdir()] == [f".{spool.id}2.Ab3dEf"]


@pytest.mark.parametrize(
    ("root", "name"), [("relative", "a"), ("/", "a"), ("/a\n", "a"), ("/a/", "a"), ("/a", "../b"), ("/a", ".b")]
)
def test_a_spool_that_could_be_elsewhere_is_invalid(root: str, name: str) -> None:
    with pytest.raises(ValueError, match="spool"):
        Spool(root, name)


async def test_free_space_is_that_of_the_disk_the_place_would_be_on(any_lab: Lab) -> None:
    free = await free_bytes(any_lab.host, f"{any_lab.folder}/not/yet there")
    assert abs(free - shutil.disk_usage(any_lab.folder).free) < 2**30


async def test_a_workspace_is_checked_without_a_turn(any_lab: Lab) -> None:
    await check_workspace(any_lab.host, str(any_lab.workspace))
    with pytest.raises(SpawnRefused) as refusal:
        await check_workspace(any_lab.host, f"{any_lab.workspace}/no")
    assert refusal.value.code == "workspace_missing"


async def test_a_probe_tells_output_and_exit(any_lab: Lab) -> None:
    output = await probe(any_lab.host, ["sh", "-c", 'echo "$1"; cat; echo oops >&2; exit 4', "sh", "v 1"])
    assert (output.exit, output.stdout, output.stderr) == (4, b"v 1\n", b"oops")
    assert (await probe(any_lab.host, ["no-such-program"])).exit == 127


async def test_a_probe_that_hangs_is_killed_with_its_children(any_lab: Lab) -> None:
    begun = time.monotonic()
    output = await probe(any_lab.host, ["sh", "-c", "echo $$; sleep 61 & sleep 61"], timeout_s=1)
    assert output.exit == 137
    assert time.monotonic() - begun < 30
    await eventually(lambda: gone_pid(int(output.stdout)))


async def test_a_scripts_output_is_kept_byte_by_byte(any_lab: Lab) -> None:
    data = os.urandom(300_000) + b"\n\nRT-EXIT guess 1\n"
    (any_lab.folder / "data").write_bytes(data)
    script = 'cat "$2"; echo "$1" >&2; exit 3'
    output = await run_script(any_lab.host, script, ["warned", str(any_lab.folder / "data")])
    assert (output.exit, output.stdout, output.stderr) == (3, data, b"warned")


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.binary(max_size=30).map(lambda data: os.fsdecode(data.replace(b"\0", b"")))))
def test_a_scripts_arguments_arrive_as_they_are(any_lab: Lab, arguments: list[str]) -> None:
    output = asyncio.run(run_script(any_lab.host, 'for word in "$@"; do printf "%s\\0" "$word"; done', arguments))
    assert output.stdout == b"".join(os.fsencode(word) + b"\0" for word in arguments)


async def test_a_script_that_does_not_end_in_time_is_unreachable(lab: Lab) -> None:
    with pytest.raises(HostUnreachable, match=r"within 0\.3 s"):
        await run_script(lab.host, "sleep 3", timeout_s=0.3)


async def test_a_channel_that_ends_in_the_middle_of_a_script_is_unreachable(lab: Lab) -> None:
    with pytest.raises(HostUnreachable, match="in the middle"):
        await run_script(lab.host, "echo some; kill -KILL $$")


async def test_output_without_an_end_does_not_fill_the_workers_memory(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remote.run._LARGEST_OUTPUT", 2**20)
    home, spool = lab.home / ".agent", lab.spool()
    lay_out(home)
    await lab.run(lab.sh("true", session_files=FILES), spool)
    os.truncate(home / "projects" / "p" / "s1.jsonl", 2**40)
    command = lab.sh("true", session_files=FILES)
    for question in (
        read_session_files(lab.host, spool, FILES),
        read_whole_session_files(lab.host, command, FILES),
    ):
        with pytest.raises(HostError, match="more than 1 MiB") as failure:
            await question
        assert type(failure.value) is HostError


async def test_an_upkeep_that_fails_says_why(lab: Lab) -> None:
    for tool in ("sh", "head"):
        (lab.folder / tool).symlink_to(f"/usr/bin/{tool}")
    with pytest.raises(HostError, match=r"free_kibibytes failed with exit 127: .*df"):
        await free_bytes(Lab(lab.folder / "bare", str(lab.folder)).host, "/")
