"""Which files a turn brings, and which it may not."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from adapters.errors import InvalidRequest
from adapters.protocol.workspace import HostMount
from workers.workspaces.mounts import check_mounts, chosen


@pytest.fixture
def allowed(tmp_path: Path) -> Path:
    """A root with a project in it, and something beside it that nobody may have."""
    (tmp_path / "secret").write_text("secret")
    project = tmp_path / "allowed" / "project"
    (project / "src" / "deep").mkdir(parents=True)
    (project / "empty").mkdir()
    (project / "src" / "a.py").write_text("a")
    (project / "src" / "deep" / "b.py").write_text("bb")
    (project / "src" / "deep" / "b.pyc").write_text("ccc")
    (project / "run").write_text("#!/bin/sh")
    (project / "run").chmod(0o755)
    os.mkfifo(project / "pipe")
    return tmp_path / "allowed"


def brought(allowed: Path, path: str = "project", **fields: Any) -> list[str]:
    """What a mount brings, directories with a slash."""
    mount = HostMount(host_path=str(allowed / path), **fields)
    check_mounts([mount], [allowed])
    return [entry.path + "/" * (entry.source is None) for entry in chosen([mount], [allowed])]


def refusal(
    allowed: Path, path: str = "project", roots: list[Path] | None = None, **fields: Any
) -> InvalidRequest:
    mount = HostMount(host_path=str(allowed / path), **fields)
    with pytest.raises(InvalidRequest) as refused:
        chosen([mount], [allowed] if roots is None else roots)
    return refused.value


def test_directory_is_brought_whole_but_for_what_is_no_file(allowed: Path) -> None:
    assert brought(allowed) == [
        "project/",
        "project/empty/",
        "project/run",
        "project/src/",
        "project/src/a.py",
        "project/src/deep/",
        "project/src/deep/b.py",
        "project/src/deep/b.pyc",
    ]
    (run,) = chosen([HostMount(host_path=str(allowed / "project/run"))], [allowed])
    assert (run.path, run.size, run.executable) == ("run", 9, True)


@pytest.mark.parametrize(
    ("include", "exclude", "names"),
    [
        (["*.py"], [], ["p/", "p/src/a.py", "p/src/deep/b.py"]),
        ([], ["*.pyc", "empty", "run"], ["p/", "p/src/", "p/src/a.py", "p/src/deep/", "p/src/deep/b.py"]),
        (["src"], ["deep"], ["p/", "p/src/", "p/src/a.py"]),
        (["deep/*"], ["b.py"], ["p/", "p/src/deep/b.pyc"]),
        (["nothing"], [], ["p/"]),
    ],
)
def test_globs_choose(allowed: Path, include: list[str], exclude: list[str], names: list[str]) -> None:
    globs = {"include_glob": tuple(include), "exclude_glob": tuple(exclude)}
    assert brought(allowed, mount_path="p", **globs) == names


def test_links_are_left_out_unless_they_are_to_be_followed(allowed: Path) -> None:
    project = allowed / "project"
    (project / "empty" / "file").symlink_to("../src/a.py")
    (project / "empty" / "folder").symlink_to(project / "src" / "deep")
    (project / "empty" / "loop").symlink_to(project)
    (project / "empty" / "dangling").symlink_to("nowhere")
    assert brought(allowed, "project/empty") == ["empty/"]
    followed = brought(allowed, "project/empty", follow_symlinks=True, exclude_glob=("loop",))
    assert followed == ["empty/", "empty/file", "empty/folder/", "empty/folder/b.py", "empty/folder/b.pyc"]
    assert brought(allowed, follow_symlinks=True)  # and comes to an end


@pytest.mark.parametrize("target", ["../../secret", "../..", "/etc"])
def test_link_that_leads_out_is_refused(allowed: Path, target: str) -> None:
    (allowed / "project" / "out").symlink_to(target)
    assert "project/out" not in brought(allowed)
    error = refusal(allowed, follow_symlinks=True)
    assert error.field == "mounts.0.follow_symlinks"
    assert f"mount_roots ({allowed})" in error.message
    assert refusal(allowed, "project/out").field == "mounts.0.host_path"


@pytest.mark.parametrize(
    "path", ["../secret", "project/../../secret", "/etc/passwd", "../allowed-too", "project/gone"]
)
def test_what_lies_elsewhere_or_nowhere_is_refused(allowed: Path, path: str) -> None:
    allowed.with_name("allowed-too").mkdir()
    error = refusal(allowed, path)
    assert error.field == "mounts.0.host_path"
    assert "does not exist" in error.message if "gone" in path else "mount_roots" in error.message


def test_links_that_multiply_come_to_an_end(allowed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.workspaces.mounts._MOST", 1000)
    for depth in range(30):  # 2**30 ways down
        (allowed / f"d{depth}").mkdir()
        for name in "ab":
            (allowed / f"d{depth}" / name).symlink_to(allowed / f"d{depth + 1}")
    (allowed / "d30").mkdir()
    refused = refusal(allowed, "d0", follow_symlinks=True)
    assert (refused.field, "more than 1,000 files" in refused.message) == ("mounts.0.host_path", True)


def test_path_that_cannot_be_looked_at_is_refused(allowed: Path) -> None:
    mount = HostMount(host_path=str(allowed / ("n" * 300)))
    for look in (check_mounts, chosen):
        with pytest.raises(InvalidRequest, match=r"is not accessible.*: File name too long") as refused:
            look([mount], [allowed])
        assert refused.value.field == "mounts.0.host_path"


def test_without_roots_there_are_no_mounts(allowed: Path) -> None:
    assert "mount_roots" in refusal(allowed, roots=[]).message


def test_root_may_be_a_link_itself(allowed: Path) -> None:
    (allowed.parent / "way in").symlink_to(allowed)
    mount = HostMount(host_path=str(allowed.parent / "way in" / "project" / "run"))
    assert len(chosen([mount], [allowed.parent / "way in"])) == 1


def test_directories_too_deep_to_be_walked_are_refused(allowed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(allowed)
    for _ in range(1000):  # as no path could name them at once
        Path("d").mkdir()
        os.chdir("d")
    monkeypatch.chdir(allowed)
    refused = refusal(allowed, "d")
    assert (refused.field, "nested too deeply" in refused.message) == ("mounts.0.host_path", True)
    subprocess.run(["rm", "-rf", allowed / "d"], check=True)  # pytest could not


def test_budget_is_for_what_would_be_copied(allowed: Path) -> None:
    assert brought(allowed, max_bytes=3, include_glob=("*.py",))
    error = refusal(allowed, max_bytes=2, include_glob=("*.py",))
    assert error.field == "mounts.0.max_bytes"
    assert "has 3 bytes to copy, more than 2" in error.message


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_cannot_be_read_is_refused(allowed: Path) -> None:
    (allowed / "project" / "src").chmod(0)
    assert "cannot be read" in refusal(allowed).message
