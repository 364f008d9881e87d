"""Workspaces that are made for turns: complete or not there, with files of any name, and gone without a trace."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import time
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import pytest

from remote.errors import HostError, HostUnreachable, SpawnRefused
from remote.host import Host
from remote.tar_stream import Entry, SourceChanged, archive, archive_size
from remote.workspaces import (
    Place,
    list_files,
    list_workspaces,
    make_of_files,
    make_worktree,
    read_files,
    read_patch,
    remove_workspace,
)
from tests.support.needs import need
from tests.support.ssh.laboratory import Lab, eventually
from tests.support.ssh.ssh_laboratory import SshLab
from tests.support.ssh.sshd import Sshd

ODD = (
    "plain",
    "with space",
    "new\nline",
    "-dash",
    "quo'te\"s",
    "$(touch x)`id`",
    "ünï",
    os.fsdecode(b"\xff\xfe"),
    "*",
)
LONG = "/".join(["d" * 90] * 3) + "/" + "f" * 120


def files_in(folder: Path, contents: dict[str, bytes]) -> list[Entry]:
    """These files, as entries of an archive."""
    entries = []
    for name, content in contents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        entries.append(Entry(name, str(path), len(content)))
    return entries


async def make(host: Host, place: Place, entries: Sequence[Entry], *, wants_patch: bool = False) -> Path:
    async def choose() -> Sequence[Entry]:
        return entries

    return Path(await make_of_files(host, place, choose, wants_patch=wants_patch))


def place_in(lab: Lab, name: str = "turn-1") -> Place:
    return Place(str(lab.folder / "made it's"), name)


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(
        [need("git"), "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@localhost", *arguments],
        check=True,
        capture_output=True,
        text=True,
    ).stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two commits, the second one on another branch, which is checked out."""
    folder = tmp_path / "a repo's"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / "kept").write_text("kept\n")
    (folder / "changed").write_text("before\n")
    (folder / ".gitignore").write_text("*.log\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "one")
    git(folder, "checkout", "-qb", "next")
    (folder / "later").write_text("later\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "two")
    return folder


async def test_files_of_any_name_and_kind_arrive_as_they_are(any_lab: Lab, tmp_path: Path) -> None:
    contents = {name: name.encode("utf-8", "surrogateescape") * 3 for name in (*ODD, LONG, "sub/also here")}
    entries = [*files_in(tmp_path / "source", contents | {"empty": b""}), Entry("no/files", None)]
    program = files_in(tmp_path / "source", {"program": b"#!/bin/sh\n"})[0]
    entries.append(Entry("program", program.source, program.size, executable=True))
    made = await make(any_lab.host, place_in(any_lab), entries)
    assert made == Path(place_in(any_lab).root, "turn-1", "workspace")
    for name, content in contents.items():
        assert (made / name).read_bytes() == content
    assert (made / "empty").read_bytes() == b""
    assert (made / "no/files").is_dir()
    assert os.access(made / "program", os.X_OK)
    assert not os.access(made / "plain", os.X_OK)


async def test_files_come_back_by_name(any_lab: Lab, tmp_path: Path) -> None:
    place = place_in(any_lab)
    made = await make(any_lab.host, place, files_in(tmp_path / "source", dict.fromkeys(ODD, b"12345")))
    (made / "link").symlink_to("/etc/passwd")
    os.mkfifo(made / "pipe")
    (made / ".git").mkdir()
    (made / ".git" / "config").write_text("")
    (made / "raw").write_bytes(bytes(range(256)))
    names, complete = await list_files(any_lab.host, place)
    assert (set(names), complete) == ({*ODD, "raw"}, True)
    found = await read_files(any_lab.host, place, ["raw", *ODD, "link", "gone"], 256 + 5 * len(ODD) - 2)
    assert (found[0].size, found[0].data) == (256, bytes(range(256)))
    assert [(file.size, file.data) for file in found[1:-3]] == [(5, b"12345")] * (len(ODD) - 1)
    assert [(file.size, file.data) for file in found[-3:]] == [(5, b"123"), (None, b""), (None, b"")]
    assert (await list_files(any_lab.host, place, 10))[1] is False


async def test_workspace_that_is_there_is_found_again(any_lab: Lab, tmp_path: Path) -> None:
    entries = files_in(tmp_path / "source", {"a": b"1"})
    made = await make(any_lab.host, place_in(any_lab), entries)
    (made / "a").write_text("changed by the agent")

    async def choose() -> Sequence[Entry]:
        raise AssertionError("asked for its files")

    assert await make_of_files(any_lab.host, place_in(any_lab), choose, wants_patch=False) == str(made)
    assert (made / "a").read_text() == "changed by the agent"


async def test_upload_that_is_cut_off_leaves_no_workspace_and_is_done_again(any_lab: Lab, tmp_path: Path) -> None:
    entries = files_in(tmp_path / "source", {"a": b"1", "b": b"2" * 3_000_000})
    cut = [entries[0], Entry("b", str(tmp_path / "missing"), 3_000_000)]
    with pytest.raises(FileNotFoundError):
        await make(any_lab.host, place_in(any_lab), cut)
    root = Path(place_in(any_lab).root)
    await eventually(
        lambda: not list(root.iterdir()), lambda: list(root.iterdir())
    )  # the host sees to it by itself
    made = await make(any_lab.host, place_in(any_lab), entries)
    assert (made / "b").stat().st_size == 3_000_000


async def test_killed_maker_leaves_a_draft_only(lab: Lab, tmp_path: Path) -> None:
    entries = files_in(tmp_path / "source", {"a": b"1"})

    async def kill() -> Sequence[Entry]:
        lab.host.cut()
        return entries

    with pytest.raises(HostUnreachable):
        await make_of_files(lab.host, place_in(lab), kill, wants_patch=False)
    (draft,) = Path(place_in(lab).root).iterdir()
    assert draft.name.startswith(".turn-1.")
    assert [state.id for state in await list_workspaces(lab.host, place_in(lab).root)] == ["turn-1"]
    assert (await make(lab.host, place_in(lab), entries) / "a").read_bytes() == b"1"
    await remove_workspace(lab.host, place_in(lab))
    assert not list(Path(place_in(lab).root).iterdir())


async def test_large_file_is_carried_in_bounded_memory_over_ssh(sshd: Sshd, site: SshLab, tmp_path: Path) -> None:
    source = tmp_path / "large"
    with source.open("wb") as file:
        file.truncate(96 * 2**20)
    target = site.target(sshd)
    async with site.pool(target) as host:
        place = Place(str(tmp_path / "made"), "turn-1")
        tracemalloc.start()
        made = await make(host, place, [Entry("large", str(source), 96 * 2**20)])
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert (made / "large").stat().st_size == 96 * 2**20
        assert peak < 24 * 2**20
        await remove_workspace(host, place)
        assert not list((tmp_path / "made").iterdir())


async def test_changes_to_files_are_a_patch_that_applies(lab: Lab, tmp_path: Path) -> None:
    need("git")
    contents = {"kept": b"kept\n", "changed": b"before\n", "gone": b"gone\n", "sub/binary": bytes(range(256))}
    place = place_in(lab)
    made = await make(
        lab.host, place, files_in(tmp_path / "source", contents | {".gitignore": b"*.log\n"}), wants_patch=True
    )
    assert await read_patch(lab.host, place, 10**6) == b""
    (made / "changed").write_text("after\n")
    (made / "gone").unlink()
    (made / "sub/binary").write_bytes(b"\0\1\2")
    (made / "new\nname").write_text("new\n")
    (made / "noise.log").write_text("ignored")
    git(made / "sub", "init", "-q")  # a repository within: its files count all the same
    (made / "sub" / "inner").write_text("inner\n")
    patch = await read_patch(lab.host, place, 10**6)
    assert await read_patch(lab.host, place, 10) == patch[:10]
    (tmp_path / "patch").write_bytes(patch)
    git(tmp_path / "source", "init", "-q")
    git(tmp_path / "source", "apply", str(tmp_path / "patch"))
    after = {path: (tmp_path / "source" / path) for path in ("changed", "sub/binary", "new\nname", "sub/inner")}
    assert {path: file.read_bytes() for path, file in after.items()} == {
        path: (made / path).read_bytes() for path in after
    }
    assert not (tmp_path / "source" / "gone").exists()
    assert not (tmp_path / "source" / "noise.log").exists()


async def test_worktree_is_made_compared_and_forgotten(lab: Lab, repository: Path, tmp_path: Path) -> None:
    place = place_in(lab)
    git(repository, "config", "worktree.useRelativePaths", "true")
    hook = repository / ".git" / "hooks" / "post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/hook-ran\n")
    hook.chmod(0o755)
    made = Path(await make_worktree(lab.host, place, str(repository), "main"))
    assert sorted(path.name for path in made.iterdir()) == [".git", ".gitignore", "changed", "kept"]
    assert not (tmp_path / "hook-ran").exists()
    assert str(made) in git(repository, "worktree", "list")
    git(repository, "worktree", "prune")
    (made / "changed").write_text("after\n")
    git(made, "commit", "-qam", "the agent's own")  # what it commits is a change, too
    (made / "new").write_text("new\n")
    (made / "noise.log").write_text("ignored")
    assert await make_worktree(lab.host, place, str(repository), "main") == str(made)
    objects = git(repository, "count-objects")
    patch = (await read_patch(lab.host, place, 10**6)).decode()
    assert git(repository, "count-objects") == objects
    assert "-before\n+after\n" in patch
    assert "+++ b/new\n" in patch
    assert "noise" not in patch
    assert "?? new\n" in git(made, "status", "--short")  # the agent's index is as it was
    await remove_workspace(lab.host, place)
    assert git(repository, "worktree", "list").count("\n") == 1
    assert not list((repository / ".git").glob("worktrees/*"))
    assert not list(Path(place.root).iterdir())


async def test_filter_that_never_ends_is_ended(
    lab: Lab, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent may leave anything for git to run."""
    place = place_in(lab)
    made = Path(await make_worktree(lab.host, place, str(repository), "HEAD"))
    git(repository, "config", "filter.endless.clean", f"echo $$ >>'{tmp_path}/pids'; sleep 600")
    (made / ".gitattributes").write_text("* filter=endless\n")
    (made / "changed").write_text("after\n")
    monkeypatch.setattr("remote.workspaces._PATCH_S", 3.0)
    with pytest.raises(HostError, match="read_patch took longer than") as error:
        await read_patch(lab.host, place, 10**6)
    assert not isinstance(error.value, HostUnreachable)
    pids = [int(line) for line in (tmp_path / "pids").read_text().split()]
    await eventually(lambda: not [pid for pid in pids if Path(f"/proc/{pid}/exe").exists()])
    await remove_workspace(lab.host, place)


async def test_reader_that_a_killed_worker_left_does_not_spoil_the_next_one(
    lab: Lab, repository: Path, tmp_path: Path
) -> None:
    place = place_in(lab)
    made = Path(await make_worktree(lab.host, place, str(repository), "HEAD"))
    waits = f"if mkdir '{tmp_path}/first'; then until test -e '{tmp_path}/go'; do sleep 0.1; done; fi; cat"
    git(repository, "config", "filter.slow.clean", waits)
    (made / ".gitattributes").write_text("changed filter=slow\n")
    (made / "changed").write_text("after\n")
    left = asyncio.create_task(read_patch(lab.host, place, 10**6))
    await eventually((tmp_path / "first").exists)
    patch = await read_patch(lab.host, place, 10**6)
    (tmp_path / "go").touch()
    assert b"-before\n+after\n" in patch
    assert await left == patch
    assert sorted(path.name for path in made.parent.iterdir() if "patch" in path.name) == []
    await remove_workspace(lab.host, place)


async def test_change_in_the_second_of_the_checkout_is_seen(lab: Lab, repository: Path) -> None:
    """Of the same size, too: then git looks at the file only if it knows how old its index is."""
    place = place_in(lab)
    for number in range(20):
        (repository / f"more-{number}").write_text("before\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "three")
    made = Path(await make_worktree(lab.host, place, str(repository), "HEAD"))
    for number in range(20):
        (made / f"more-{number}").write_text("behind\n")
    next_second = int(time.time()) + 1
    await eventually(lambda: time.time() >= next_second)
    assert (await read_patch(lab.host, place, 10**6)).count(b"-before\n+behind\n") == 20
    await remove_workspace(lab.host, place)


async def test_worktree_without_its_git_is_still_compared(lab: Lab, repository: Path) -> None:
    """The agent may do there what it wants."""
    place = place_in(lab)
    made = Path(await make_worktree(lab.host, place, str(repository), "HEAD"))
    (made / ".git").unlink()
    (made / "later").unlink()
    git(made, "init", "-q")
    assert b"deleted file" in await read_patch(lab.host, place, 10**6)
    await remove_workspace(lab.host, place)
    assert not list((repository / ".git").glob("worktrees/*"))


async def test_submodule_makes_git_obey_no_agent(lab: Lab, repository: Path, tmp_path: Path) -> None:
    module, trap = tmp_path / "module", tmp_path / "sprung"
    git(tmp_path, "init", "-q", str(module))
    (module / "file").write_text("a\n")
    git(module, "add", ".")
    git(module, "commit", "-qm", "first")
    git(repository, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(module), 'an "ödd" one')
    git(repository, "commit", "-qm", "with a submodule")
    place = place_in(lab)
    inner = Path(await make_worktree(lab.host, place, str(repository), "HEAD")) / 'an "ödd" one'

    git(inner, "init", "-q")
    git(inner, "fetch", "-q", str(module))
    git(inner, "reset", "-q", "--hard", "FETCH_HEAD")
    git(inner, "config", "filter.trap.clean", f"touch '{trap}'; cat")
    git(inner, "config", "core.fsmonitor", f"touch '{trap}'")
    (inner / ".gitattributes").write_text("* filter=trap\n")
    (inner / "file").write_text("b\n")  # as long as before, so git has to read it
    assert await read_patch(lab.host, place, 10_000) == b""
    assert not trap.exists()

    (inner / ".gitattributes").unlink()
    git(inner, "config", "core.fsmonitor", "false")
    git(inner, "commit", "-qam", "second")
    head = git(inner, "rev-parse", "HEAD").strip()
    assert f"+Subproject commit {head}\n".encode() in await read_patch(lab.host, place, 10_000)
    (inner / "file").unlink()
    shutil.rmtree(inner)
    assert b"deleted file mode 160000" in await read_patch(lab.host, place, 10_000)


async def test_draft_of_a_worktree_is_removed_with_what_its_repository_knows(lab: Lab, repository: Path) -> None:
    place = place_in(lab)
    made = Path(await make_worktree(lab.host, place, str(repository), "HEAD"))
    made.parent.rename(made.parent.with_name(".turn-1.abcdef"))  # as if it had been killed before the last step
    await make_worktree(lab.host, place, str(repository), "HEAD")
    await remove_workspace(lab.host, place)
    assert not list((repository / ".git").glob("worktrees/*"))
    assert not list(Path(place.root).iterdir())


@pytest.mark.parametrize(
    ("folder", "ref", "roots", "code"),
    [
        ("missing", "HEAD", (), "repository_missing"),
        ("", "HEAD", (), "repository_missing"),
        ("a repo's", "nowhere", (), "ref_missing"),
        ("a repo's", "HEAD", ("/usr",), "workspace_not_allowed"),
        ("way in", "HEAD", ("{}/way in",), None),
    ],
)
async def test_repository_has_to_be_there_and_allowed(
    lab: Lab, repository: Path, tmp_path: Path, folder: str, ref: str, roots: tuple[str, ...], code: str | None
) -> None:
    (tmp_path / "way in").symlink_to(repository)
    where = [root.format(tmp_path) for root in roots]
    asked = make_worktree(lab.host, place_in(lab), str(tmp_path / folder), ref, where)
    if code is None:
        await asked
        return
    with pytest.raises(SpawnRefused) as refusal:
        await asked
    assert refusal.value.code == code
    assert not list(Path(place_in(lab).root).iterdir())


async def test_missing_git_is_named(any_lab: Lab, tmp_path: Path) -> None:
    folder = tmp_path / "without"
    folder.mkdir()
    for tool in ("sh", "head", "tar", "mktemp", "find", "mkdir", "rm", "tr"):
        (folder / tool).symlink_to(need(tool))
    any_lab.host._host.env["PATH"] = str(folder)  # type: ignore[index]
    with pytest.raises(SpawnRefused, match="git is not installed") as refusal:
        await make(any_lab.host, place_in(any_lab), [], wants_patch=True)
    assert refusal.value.code == "git_missing"


async def test_removal_takes_what_may_not_be_written(any_lab: Lab, tmp_path: Path) -> None:
    made = await make(any_lab.host, place_in(any_lab), files_in(tmp_path / "source", {"sub/a": b"1"}))
    (made / "sub").chmod(0o500)
    await remove_workspace(any_lab.host, place_in(any_lab))
    assert not made.parent.exists()
    await remove_workspace(any_lab.host, place_in(any_lab))
    await remove_workspace(any_lab.host, Place(str(tmp_path / "never"), "turn-1"))


async def test_pipe_in_the_place_of_a_file_of_ours_holds_up_no_removal(
    any_lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent may write beside its workspace, too."""
    monkeypatch.setattr("remote.workspaces._REMOVE_S", 10.0)
    made = await make(any_lab.host, place_in(any_lab), files_in(tmp_path / "source", {"a": b"1"}))
    os.mkfifo(made.parent / "repository")
    await remove_workspace(any_lab.host, place_in(any_lab))
    assert not made.parent.exists()


def test_file_that_is_exchanged_for_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "file").symlink_to("/etc/passwd")
    with pytest.raises(OSError, match="symbolic links"):
        list(archive([Entry("file", str(tmp_path / "file"), 10)]))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "key").write_text("0123456789")
    (tmp_path / "directory").symlink_to(tmp_path / "elsewhere")  # while others were sent
    with pytest.raises(OSError, match=r"symbolic links|Not a directory"):
        list(archive([Entry("key", str(tmp_path / "directory" / "key"), 10)]))
    (tmp_path / "short").write_text("123")
    with pytest.raises(SourceChanged):
        list(archive([Entry("short", str(tmp_path / "short"), 10)]))


def test_size_of_an_archive_is_known_before(tmp_path: Path) -> None:
    entries = [*files_in(tmp_path, {"a": b"", "b": b"x" * 512, "c": b"x" * 513, LONG: b"1"}), Entry("d", None)]
    assert archive_size(entries) == sum(map(len, archive(entries)))
