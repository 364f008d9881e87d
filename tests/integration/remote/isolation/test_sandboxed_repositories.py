"""Git worktrees in sandboxes, with the real git: agents commit, and reach nothing else of the repository."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from adapters.isolation import Isolation
from remote.containment import Containment
from remote.spool import Exit
from remote.test_command import run_check
from remote.workspaces import Place, make_worktree, read_patch, remove_workspace
from tests.integration.remote.conftest import SHELLS, opened
from tests.support.needs import need, need_namespaces
from tests.support.ssh.laboratory import Lab, drain, read_until

AUTHOR = {f"GIT_{who}_{what}": "t@localhost" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def git(folder: Path, *arguments: str) -> str:
    """What git prints, run outside."""
    named = [need("git"), "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@localhost", *arguments]
    return subprocess.run(named, check=True, capture_output=True, text=True).stdout


# From 2.47 on, git locks the packed branches whenever it commits, for nothing, and says so if it cannot.
_USELESS_LOCK = re.compile(r"^error: Unable to create '.*/packed-refs\.lock': Read-only file system\n", re.M)


class Repository:
    """A repository with a branch, packed and loose objects, and a worktree that is the workspace."""

    def __init__(self, lab: Lab, at: Path) -> None:
        self.lab, self.path, self.worktree = lab, at, at.parent / "work tree's"
        at.mkdir(parents=True)
        git(at, "init", "-q", "-b", "main")
        for name in ("one", "two"):
            (at / name).write_text(f"{name}\n")
            git(at, "add", "-A")
            git(at, "commit", "-qm", name)
            if name == "one":
                git(at, "gc", "-q")
        git(at, "worktree", "add", "-q", "--detach", str(self.worktree))

    @property
    def own(self) -> Path:
        """The worktree's own git directory."""
        (found,) = (self.path / ".git/worktrees").iterdir()
        return found

    async def run(self, script: str, *args: str, **fields: object) -> tuple[str, Exit]:
        fields.setdefault("cwd", str(self.worktree))
        output, end = await self.lab.run(self.lab.sh(f"exec 2>&1; {script}", *args, env=AUTHOR, **fields))
        return _USELESS_LOCK.sub("", output.decode()), end

    def said_in(self, name: str) -> str:
        return git(self.worktree, "log", "-1", f"--format={name}").strip()


@pytest.fixture(params=SHELLS)
def lab(request: pytest.FixtureRequest, tmp_path: Path, search_paths: Callable[[str], str]) -> Iterator[Lab]:
    """A host whose agents run in sandboxes, for each kind of shell."""
    need_namespaces()
    shell = search_paths(request.param)
    path = f"{shell}:{Path(need('bwrap')).parent}:{Path(need('git')).parent}"
    containment = Containment(Isolation.SANDBOX, shown=(shell.split(":")[0],))
    yield from opened(Lab(tmp_path / "lab", path, containment=containment))


@pytest.fixture
def repository(lab: Lab) -> Repository:
    """Below the home, in a directory with a blank and a quote."""
    return Repository(lab, lab.home / "source it's" / "repo")


async def test_agent_uses_git_in_a_worktree_and_its_commits_stay(repository: Repository) -> None:
    (repository.worktree / "one").write_text("changed\n")
    work = """
        set -e
        git status --short; git log --format=%s; git diff --stat | tail -n 1
        git add -A; git commit -qm three; echo more >more; git add more; git status --short
    """
    output, end = await repository.run(work)
    assert end.code == 0, output
    assert output.split("\n")[:4] == [" M one", "two", "one", " 1 file changed, 1 insertion(+), 1 deletion(-)"]
    assert git(repository.worktree, "log", "--format=%s").split() == ["three", "two", "one"]
    assert git(repository.worktree, "status", "--short") == "A  more\n"
    git(repository.worktree, "fsck", "--strict", "--no-dangling")
    assert git(repository.worktree, "show", ":more") == "more\n"
    assert not [each for each in (repository.own / "runturn").rglob("*") if len(each.name) > 30]
    second, _ = await repository.run("git log --format=%s && git commit -qm four && git log -1 --format=%s")
    assert second.split() == ["three", "two", "one", "four"]
    assert repository.said_in("%s") == "four"


async def test_packs_that_an_agent_makes_are_kept_too(repository: Repository) -> None:
    work = 'git commit -q --allow-empty -m three; git repack -qad; git prune-packed; ls "$1"/*.idx'
    output, end = await repository.run(work, str(repository.path / ".git/objects/pack"))
    assert end.code == 0, output
    assert repository.said_in("%s") == "three"
    git(repository.path, "fsck", "--strict", "--no-dangling")
    assert not list((repository.own / "runturn/pack").iterdir())


async def test_turns_own_worktree_is_committed_in_and_its_patch_read(lab: Lab, repository: Repository) -> None:
    place = Place(str(lab.folder / "made it's"), "turn-1")
    made = Path(await make_worktree(lab.host, place, str(repository.path), "main"))
    work = (
        "echo three >three; git add -A; git commit -qm three; echo four >four; git add four; git log --format=%s"
    )
    output, _ = await repository.run(work, cwd=str(made))
    assert output.split() == ["three", "two", "one"]
    patch = (await read_patch(lab.host, place, 10**6)).decode()
    assert "+three\n" in patch
    assert "+four\n" in patch
    await remove_workspace(lab.host, place)
    assert git(repository.path, "worktree", "list").count("\n") == 2


@pytest.mark.parametrize("end", ["cancelled", "killed"])
async def test_commit_of_a_turn_that_is_ended_stays(lab: Lab, repository: Repository, end: str) -> None:
    work = "git commit -q --allow-empty -m three; echo ready; sleep 600"
    spool = lab.spool()
    async with lab.follow(spool, lab.sh(work, cwd=str(repository.worktree), env=AUTHOR)) as turn:
        await read_until(turn, b"ready")
        if end == "cancelled":
            await turn.cancel()
        else:
            lab.kill(spool, "agent")
        await drain(turn)
    assert repository.said_in("%s") == "three"
    await lab.nothing_left(spool)


async def test_commit_of_a_test_command_stays(lab: Lab, repository: Repository) -> None:
    spool = lab.spool()
    agent = lab.sh("echo done", cwd=str(repository.worktree))
    await lab.run(agent, spool)
    checked = await run_check(
        lab.host, spool, 1, agent, "git commit -q --allow-empty -m three", AUTHOR,
        containment=lab.containment, timeout_s=60.0, tail=1000,
    )  # fmt: skip
    assert checked.exit == 0, checked
    assert repository.said_in("%s") == "three"


@pytest.mark.parametrize(
    "target",
    [
        "{git}/config",
        "{git}/hooks/post-commit",
        "{git}/HEAD",
        "{git}/refs/heads/main",
        "{git}/refs/heads/new",
        "{git}/packed-refs",
        "{git}/info/attributes",
        "{git}/new",
        "{own}/commondir",
        "{own}/gitdir",
        "{own}/config.worktree",
        "{own}/runturn/info/alternates",
        "{git}/objects/info/alternates",
        "{work}/.git",
    ],
)
async def test_agent_writes_nothing_that_git_would_obey_outside(
    lab: Lab, repository: Repository, target: str
) -> None:
    file = target.format(git=repository.path / ".git", own=repository.own, work=repository.worktree)
    before = _content(Path(file))
    attack = """
        echo evil >"$1" && echo written
        [ -e "$1" ] && rm -f "$1" && echo removed
        echo evil >"$1.new" && mv -f "$1.new" "$1" && echo replaced
        mv "${1%/*}" "${1%/*}.away" && echo moved
    """
    output, _ = await repository.run(f"{{ {attack} }} 2>/dev/null", file)
    assert output == ""
    assert _content(Path(file)) in (before, b"", b"/run/repository/objects\n")


async def test_objects_of_the_repository_are_as_they_were(repository: Repository) -> None:
    objects = repository.path / ".git/objects"
    before = _files(objects)
    forge = """
        for object in /run/repository/objects/??/* /run/repository/objects/pack/*; do
            name=${object#/run/repository/objects/}
            mkdir -p "$1/${name%/*}"
            echo evil >"$object" || echo evil >"$1/$name"
            rm -f "$object"
        done 2>/dev/null
    """
    await repository.run(forge, str(objects))
    assert _files(objects) == before
    git(repository.path, "fsck", "--strict")


async def test_forged_object_gets_the_name_of_its_content(repository: Repository) -> None:
    """Else a file that somebody checks out later could be the agent's."""
    forge = """
        evil=$(echo evil | git hash-object -w --stdin); good=$(echo good | git hash-object --stdin)
        mkdir -p "$1/objects/${good%${good#??}}"
        cp "$1/objects/${evil%${evil#??}}/${evil#??}" "$1/objects/${good%${good#??}}/${good#??}"
        echo "$good"
    """
    output, _ = await repository.run(forge, str(repository.path / ".git"))
    found = subprocess.run(
        ["git", "-C", str(repository.path), "cat-file", "-p", output.strip()], check=False, capture_output=True
    )
    assert found.stdout == b""
    git(repository.path, "fsck", "--strict", "--no-dangling")


async def test_links_in_the_store_lead_nowhere_outside(lab: Lab, repository: Repository, tmp_path: Path) -> None:
    other = Repository(lab, tmp_path / "other" / "repo")
    loose = next(path for path in (other.path / ".git/objects").glob("??/*") if len(path.parent.name) == 2)
    before = _files(other.path / ".git/objects")
    await repository.run(
        'ln -s "$2" "$1/objects/$3"', str(repository.path / ".git"), str(loose.parent), loose.parent.name
    )
    missing = subprocess.run(
        ["git", "-C", str(repository.path), "cat-file", "-e", loose.parent.name + loose.name], check=False
    )
    assert missing.returncode != 0 or loose.name in _files(repository.path / ".git/objects")
    assert _files(other.path / ".git/objects") == before


async def test_commit_on_a_branch_fails_by_name_and_works_detached(repository: Repository) -> None:
    git(repository.worktree, "checkout", "-qb", "topic")
    output, end = await repository.run("git commit --allow-empty -qm three")
    assert end.code != 0
    assert "Read-only file system" in output
    assert "refs/heads/topic" in output
    output, end = await repository.run("git checkout -q --detach && git commit --allow-empty -qm three")
    assert end.code == 0, output
    assert repository.said_in("%s") == "three"


@pytest.mark.parametrize("lie", ["{home}/.ssh", "{work}/fake", "{home}/evil/worktrees/w"])
async def test_git_file_that_lies_shows_nothing(lab: Lab, repository: Repository, lie: str) -> None:
    """An agent of an earlier turn may have written it."""
    secret = lab.home / ".ssh" / "key"
    secret.parent.mkdir()
    secret.write_text("secret\n")
    fake = Path(lie.format(home=lab.home, work=lab.workspace))
    fake.mkdir(parents=True, exist_ok=True)
    (fake / "commondir").write_text(f"{secret.parent}\n")
    (fake / "gitdir").write_text(f"{lab.workspace}/.git\n")
    (lab.workspace / ".git").write_text(f"gitdir: {fake}\n")
    output, _ = await repository.run(f"cat '{secret}'; git status", cwd=str(lab.workspace))
    assert "secret" not in output
    assert "fatal: not a git repository" in output or "fatal: " in output


async def test_link_in_a_git_directory_shows_nothing(lab: Lab, repository: Repository) -> None:
    secret = lab.home / "key"
    secret.write_text("secret\n")
    (repository.own / "config.worktree").symlink_to(secret)
    output, _ = await repository.run(f"cat '{repository.own}/config.worktree' '{secret}'; git status")
    assert "secret\n" not in output
    assert "fatal: not a git repository" in output


@pytest.mark.parametrize("relative", [False, True])
async def test_other_worktrees_inside_a_bare_repository_are_hidden(
    lab: Lab, tmp_path: Path, relative: bool
) -> None:
    source = Repository(lab, tmp_path / "source")
    bare = lab.home / "bare.git"
    git(tmp_path, "clone", "-q", "--bare", str(source.path), str(bare))
    for name in ("mine", "theirs"):
        git(bare, "worktree", "add", "-q", "--detach", str(bare / name))
        if relative:  # as git does since 2.48, if told to
            (bare / name / ".git").write_text(f"gitdir: ../worktrees/{name}\n")
            (bare / "worktrees" / name / "gitdir").write_text(f"../../{name}/.git\n")
    output, _ = await source.run(
        f"git commit -q --allow-empty -m three; git log --format=%s; ls '{bare}/theirs'", cwd=str(bare / "mine")
    )
    assert output.split() == ["three", "two", "one"]
    assert git(bare / "mine", "log", "-1", "--format=%s") == "three\n"


@pytest.mark.parametrize("relative", [False, True])
async def test_worktree_is_found_where_its_home_was_before_it_became_a_link(
    tmp_path: Path, relative: bool
) -> None:
    need_namespaces()
    need("bwrap")
    for lab in opened(Lab(tmp_path / "lab", "/usr/bin:/bin", containment=Containment(Isolation.SANDBOX))):
        repository = Repository(lab, lab.home / "a repo's")
        moved = lab.folder / "disk" / "home"
        moved.parent.mkdir()
        lab.home.rename(moved)
        lab.home.symlink_to(moved)
        if relative:
            (repository.worktree / ".git").write_text(
                f"gitdir: ../a repo's/.git/worktrees/{repository.own.name}\n"
            )
        output, end = await repository.run("git commit -q --allow-empty -m three && git log --format=%s")
        assert end.code == 0, output
        assert output.split() == ["three", "two", "one"]
        assert repository.said_in("%s") == "three"


async def test_objects_that_cannot_be_kept_are_named_and_kept_by_the_next_turn(
    lab: Lab, repository: Repository, tmp_path: Path
) -> None:
    breaks = 'git commit -q --allow-empty -m three; mkdir -p "$1/objects/00"; : >"$1/objects/00/$2"'
    spool = lab.spool()
    common = str(repository.path / ".git")
    agent = lab.sh(breaks, common, "0" * 38, cwd=str(repository.worktree), env=AUTHOR)
    async with lab.follow(spool, agent) as turn:
        async for _ in turn:
            pass
        assert b"what the agent has committed stays in" in await turn.stderr_tail()
    output, _ = await repository.run('git log --format=%s; rm "$1"', f"{common}/objects/00/{'0' * 38}")
    assert output.split() == ["three", "two", "one"]
    assert repository.said_in("%s") == "three"


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def _files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
