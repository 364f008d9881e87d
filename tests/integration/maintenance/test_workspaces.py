"""Workspaces that turns bring: there when the agent starts, in the result when it has ended, gone in the end."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from adapters.command import Command
from adapters.contract import Session
from adapters.protocol.request import TurnRequest
from adapters.protocol.result import Collected, Status, TurnResult
from adapters.registry import Registry
from ops.ledger import Attempt
from tests.docs.pages import page
from tests.fakes.model_api import Hold, Reply, Script, Text, Usage, replies
from tests.integration.conftest import claude_fleet
from tests.support.fleets.fleet import Fleet
from tests.support.fleets.site import Counted, Killed, Site
from tests.support.needs import need
from tests.support.places import RECORDINGS
from tests.support.processes import of_turns, until_at_rest
from tests.support.ssh.ssh_logins import Login, logins, ssh_fleet
from tests.support.ssh.sshd import Sshd
from tests.support.waiting import until
from tests.system.test_crash_points import Death
from workers.maintenance.host_cleanup import tidy
from workers.turn.placement import Placement
from workers.turn.run import Left, RunOutcome, RunTurn
from workers.turn.settlement import Parked

# Where a worker is killed in its thread that writes events, that thread ends as the whole process would.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")

RECORDING = RECORDINGS / "a_parallel_tools.jsonl"

WEEK_S = 7 * 86_400

# In place of Claude Code: keeps its prompt, does what `todo` in its workspace says, and prints a recording.
AGENT = rf"""#!/bin/sh
cat >"$HOME/prompt"
pwd >>"$HOME/places"
if [ -e todo ]; then . ./todo; else . "$HOME/todo"; fi
until [ "$1" = --session-id ] || [ "$1" = --resume ]; do shift; done
sed 's/"session_id":"[^"]*"/"session_id":"'"$2"'"/' {shlex.quote(str(RECORDING))}
"""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """One fleet with one worker for the whole module."""
    root = tmp_path_factory.mktemp("workspaces")
    agent = root / "agent"
    agent.write_text(AGENT)
    agent.chmod(0o755)
    roots = json.dumps([str(root / "allowed")])
    environment = {"PATH": os.environ["PATH"], "HOME": str(root), "DEPLOY_TOKEN": "a-token-of-some-length"}
    with Fleet(root, environment, agent__command=str(agent), mount_roots=roots, agent__lease_ms="5000") as fleet:
        fleet.start_worker()
        yield fleet


@pytest.fixture
def project(fleet: Fleet, request: pytest.FixtureRequest) -> Path:
    """A directory that may be mounted."""
    folder = fleet.root / "allowed" / f"{request.node.name.replace('[', '-').strip(']')} it's"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "main.py").write_text("print('before')\n")
    (folder / "src" / "main.pyc").write_bytes(b"\0")
    return folder


def todo(project: Path, script: str) -> str:
    """What the agent does in the workspace that this directory is mounted in."""
    (project / "todo").write_text(script)
    return str(project / "todo")


def bringing(fleet: Fleet, project: Path, script: str, **fields: Any) -> str:
    """Queue a turn with the project and what is to be done there."""
    mounts = [
        {"host_path": str(project / "src"), "mount_path": "project/src", "exclude_glob": ["*.pyc"]},
        {"host_path": todo(project, script)},
    ]
    request = {"prompt": "do it", "mounts": mounts, "agent": "claude-code", **fields}
    return fleet.client.enqueue(fleet.request(**request, workspace=""))


def home_of(result: TurnResult) -> Collected:
    assert result.collected is not None
    return result.collected


def made(fleet: Fleet) -> list[Path]:
    """What is left of made workspaces."""
    return sorted((fleet.state.root / "workspaces").glob("*"))


def lines(fleet: Fleet, name: str) -> list[str]:
    return (fleet.root / name).read_text().splitlines()


def test_mounts_are_worked_in_collected_and_removed(fleet: Fleet, project: Path) -> None:
    need("git")
    script = "echo after >project/src/main.py; echo new >'new file'; printf '\\000\\377' >raw; ls project/src >ls"
    turn_id = bringing(fleet, project, script, collect={"patch": True, "files": ["new*", "raw", "ls"]})
    result = fleet.result(turn_id)
    assert result.status is Status.COMPLETED, result.error
    home = home_of(result)
    assert "-print('before')\n+after\n" in (home.patch or "")
    assert "+++ b/new file\t\n" in (home.patch or "")
    assert {name: file.text for name, file in home.files.items()} == {
        "new file": "new\n",
        "ls": "main.py\n",
        "raw": None,
    }
    assert base64.b64decode(home.files["raw"].base64 or "") == b"\0\xff"
    assert (home.truncated, home.problem) == (False, None)
    assert (project / "src" / "main.py").read_text() == "print('before')\n"
    place = fleet.state.root / "workspaces" / turn_id / "workspace"
    assert lines(fleet, "places")[-1] == str(place)
    prompt = (fleet.root / "prompt").read_text()
    assert prompt.startswith("do it\n\n# Workspace\n")
    assert str(place) in prompt
    assert f"- project/src: from {project}/src (without *.pyc)" in prompt
    until(lambda: not made(fleet), "the workspace to be removed")


def test_what_is_collected_is_cut_where_there_is_no_room_and_free_of_secrets(fleet: Fleet, project: Path) -> None:
    script = 'echo "$DEPLOY_TOKEN" >a; seq 1000 >b; echo c >c'
    files = {"files": ["a", "b", "c"], "max_bytes": 200}
    home = home_of(fleet.result(bringing(fleet, project, script, collect=files, env=["DEPLOY_TOKEN"])))
    assert home.truncated
    assert home.files["a"].text == "[redacted:DEPLOY_TOKEN]\n"
    assert (home.files["b"].text or "").startswith("1\n2\n")
    assert (home.files["b"].text or "").endswith("\n")
    assert (home.files["b"].truncated, home.files["b"].size) == (True, 3893)
    assert (home.files["c"].text, home.files["c"].truncated, home.files["c"].size) == (None, True, 2)


def test_failed_turn_is_tried_again_in_the_same_workspace_and_collected(fleet: Fleet, project: Path) -> None:
    before = len(lines(fleet, "places"))
    script = "echo tried >>tries; kill -KILL $$"
    turn_id = bringing(fleet, project, script, collect={"files": ["tries"]}, max_attempts=3)
    result = fleet.result(turn_id)
    assert (result.status, result.attempts) == (Status.CANCELLED, 3)
    assert home_of(result).files["tries"].text == "tried\n" * 3
    assert len(set(lines(fleet, "places")[before:])) == 1
    until(lambda: not made(fleet), "the workspace to be removed")


def test_git_worktree_is_worked_in_and_its_patch_collected(fleet: Fleet, project: Path) -> None:
    repository = project / "repository"
    repository.mkdir()
    (repository / "todo").write_text(
        "echo after >>todo; git -c user.name=a -c user.email=a@b commit -qam more; echo x >y\n"
    )
    git = (need("git"), "-C", str(repository), "-c", "user.name=t", "-c", "user.email=t@localhost")
    for command in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "one")):
        subprocess.run([*git, *command], check=True)
    request = fleet.request(workspace="", worktree={"repository": str(repository)}, collect={"patch": True})
    result = fleet.run(request)
    assert result.status is Status.COMPLETED, result.error
    patch = home_of(result).patch or ""
    assert "+after\n" in patch
    assert "+++ b/y\n" in patch
    assert f"a git worktree of {repository} at HEAD" in (fleet.root / "prompt").read_text()
    until(lambda: not list((repository / ".git").glob("worktrees/*")), "the worktree to be forgotten")
    until(lambda: not made(fleet), "the workspace to be removed")


@pytest.mark.parametrize(
    ("mount", "field"),
    [
        ({"host_path": "/etc/passwd"}, "mounts.0.host_path"),
        ({"host_path": "{allowed}/../secret"}, "mounts.0.host_path"),
        ({"host_path": "{project}/out"}, "mounts.0.host_path"),
        ({"host_path": "{project}/missing"}, "mounts.0.host_path"),
        ({"host_path": "{project}", "follow_symlinks": True}, "mounts.0.follow_symlinks"),
        ({"host_path": "{project}", "max_bytes": 5}, "mounts.0.max_bytes"),
    ],
)
def test_what_a_turn_may_not_bring_is_refused_with_its_field(
    fleet: Fleet, project: Path, mount: dict[str, Any], field: str
) -> None:
    (fleet.root / "secret").write_text("secret")
    (project / "out").symlink_to(fleet.root / "secret")
    path = mount["host_path"].format(allowed=fleet.root / "allowed", project=project)
    result = fleet.run(fleet.request(workspace="", mounts=[{**mount, "host_path": path}]))
    assert result.error is not None
    assert result.error.kind == "invalid_request"
    assert result.error.message.startswith(f"{field}: ")
    if field.endswith("max_bytes"):
        assert "has 17 bytes to copy, more than 5" in result.error.message
    until(lambda: not made(fleet), "nothing to be made")


def test_missing_repository_is_the_workspace_that_is_wrong(fleet: Fleet) -> None:
    need("git")
    result = fleet.run(fleet.request(workspace="", worktree={"repository": str(fleet.root / "nothing")}))
    assert result.error is not None
    assert result.error.kind == "invalid_workspace_cwd"
    assert "worktree.repository" in result.error.message


def test_workspace_is_kept_for_the_turns_that_go_on_in_its_session(fleet: Fleet, project: Path) -> None:
    result = fleet.result(bringing(fleet, project, "echo kept >here", keep_workspace=True))
    assert result.workspace is not None
    assert Path(result.workspace, "here").read_text() == "kept\n"
    script = Path(result.workspace, "todo")
    script.write_text("echo more >>here")
    collect = {"patch": True, "files": ["here"]}
    again = fleet.run(fleet.request(workspace=result.workspace, session_id=result.session_id, collect=collect))
    assert again.status is Status.COMPLETED, again.error
    assert again.workspace == result.workspace  # for the turn after it
    assert home_of(again).files["here"].text == "kept\nmore\n"
    assert made(fleet) == [Path(result.workspace).parent]


class Editing(Counted):
    """The agent `scripted`, which does what `todo` in its workspace says before."""

    def build(self, request: TurnRequest, session: Session) -> Command:
        """See `Adapter.build`."""
        command = super().build(request, session)
        argv = ("sh", "-c", '. ./todo; exec "$@"', "agent", *command.argv)
        return replace(command, argv=argv, files={"mcp.json": b'{"env": {"MCP_TOKEN": "of-the-server"}}'})


class Stage(Site):
    """A site whose turns bring a directory with something to do."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.project = root / "allowed" / "project"
        self.project.mkdir(parents=True)
        (self.project / "todo").write_text("echo tried >>tries")
        self._settings = self._settings.model_copy(update={"mount_roots": (root / "allowed",)})
        self._registry = Registry([Editing(self._registry.get("claude-code"), root / "starts")])

    @property
    def made(self) -> list[str]:
        """What is left of made workspaces."""
        folder = self.root / "workspaces"
        return sorted(path.name for path in folder.iterdir()) if folder.exists() else []

    def bring(self, **fields: Any) -> str:
        """A new turn."""
        mounts = [{"host_path": str(self.project / "todo")}]
        options = {"recording": str(RECORDING)}
        return self.queue(workspace="", mounts=mounts, options=options, collect={"files": ["tries"]}, **fields)

    def tidy(self) -> None:
        """As workers do now and then."""
        until_at_rest(self.spool)
        worker = self.worker()
        asyncio.run(tidy(worker, worker.hosts.get("local")))


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.close()
    until(lambda: not of_turns(stage.spool), "all agents to be gone")


STEPS = ("queue.begin_attempt", "workspaces.place", "queue.start", "accounting.usage_of", "queue.settle")


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", STEPS)
def test_worker_killed_at_any_step_is_succeeded_in_the_same_workspace(stage: Stage, step: str, when: str) -> None:
    turn_id = stage.bring()

    async def live_twice() -> None:
        with pytest.raises(Killed):
            await stage.work(turn_id, Death(f"{when} {step}"))
        if (when, step) != ("after", "queue.settle"):
            await stage.finish(turn_id)

    asyncio.run(live_twice())
    result = stage.ledger.reports.result(turn_id)
    assert result is not None
    # Whoever was just about to tell the host to start the agent may have done so.
    attempts = 2 if (when, step) == ("after", "queue.start") else 1
    assert (result.status, result.attempts, stage.starts) == (Status.COMPLETED, attempts, 1)
    assert home_of(result).files["tries"].text == "tried\n"
    if (when, step) == ("after", "queue.settle"):
        assert stage.made == [turn_id]
        stage.tidy()
    assert stage.made == []


def test_turn_that_is_cancelled_while_it_waits_brings_home_what_it_has_without_secrets(stage: Stage) -> None:
    (stage.project / "todo").write_text('cat "$RUNTURN_SPOOL/files/mcp.json" >>tries; kill -KILL $$')
    turn_id = stage.bring(max_attempts=5)

    async def play() -> TurnResult:
        assert isinstance(await stage.work(turn_id), Parked)
        stage.ledger.queue.cancel(turn_id, stage.now())
        return await stage.finish(turn_id)

    result = asyncio.run(play())
    assert result.status is Status.CANCELLED
    assert home_of(result).files["tries"].text == '{"env": {"MCP_TOKEN": "[redacted:MCP_TOKEN]"}}'
    assert stage.made == []


async def in_mid_upload(run: RunTurn) -> asyncio.Task[RunOutcome]:
    work = asyncio.create_task(run.drive())
    while run._workspaces._making is None:
        await asyncio.sleep(0)
    return work


def test_worker_that_leaves_in_mid_upload_leaves_the_turn_to_the_next(stage: Stage) -> None:
    turn_id = stage.bring()

    async def play() -> TurnResult:
        run = RunTurn(stage.worker(), stage.claim(turn_id))
        work = await in_mid_upload(run)
        run.leave()
        assert isinstance(await work, Left)
        return await stage.finish(turn_id)

    result = asyncio.run(play())
    assert (result.status, result.attempts, stage.starts) == (Status.COMPLETED, 1, 1)
    assert stage.made == []


def test_turn_cancelled_in_mid_upload_never_starts_its_agent(stage: Stage) -> None:
    turn_id = stage.bring()

    async def play() -> RunOutcome:
        run = RunTurn(stage.worker(), stage.claim(turn_id))
        work = await in_mid_upload(run)
        run.cancel()
        return await work

    result = asyncio.run(play())
    assert isinstance(result, TurnResult)
    assert (result.status, stage.starts) == (Status.CANCELLED, 0)


def test_turn_cancelled_as_its_attempt_begins_makes_no_workspace(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunTurn(stage.worker(), stage.claim(stage.bring()))
    begin = Placement.begin

    async def begin_and_cancel(placement: Placement) -> Attempt:
        attempt = await begin(placement)
        run.cancel()
        return attempt

    async def no_upload(*_: object, **__: object) -> str:
        raise AssertionError("a workspace is made")

    monkeypatch.setattr(Placement, "begin", begin_and_cancel)
    monkeypatch.setattr("workers.workspaces.lifecycle.make_of_files", no_upload)
    result = asyncio.run(run.drive())
    assert isinstance(result, TurnResult)
    assert (result.status, stage.starts) == (Status.CANCELLED, 0)


def test_only_what_no_turn_needs_is_tidied_up(stage: Stage) -> None:
    (stage.project / "todo").write_text("echo tried >>tries; kill -KILL $$")
    waiting = stage.bring(max_attempts=5)
    kept = stage.bring(keep_workspace=True, max_attempts=1)

    async def play() -> None:
        assert isinstance(await stage.work(waiting), Parked)
        await stage.finish(kept)

    asyncio.run(play())
    foreign = stage.root / "workspaces" / "another-s"
    draft = stage.root / "workspaces" / f".{kept}.abcdef"
    foreign.mkdir()
    draft.mkdir()
    stage.tidy()
    assert stage.made == sorted([waiting, kept, foreign.name, draft.name])
    os.utime(foreign, (time.time() - WEEK_S - 60,) * 2)
    stage.tidy()
    assert stage.made == sorted([waiting, kept, draft.name])
    stage.later += WEEK_S
    stage.tidy()
    assert stage.made == [waiting]


def test_kept_workspace_stays_as_long_as_turns_come_to_it(stage: Stage) -> None:
    kept = stage.bring(keep_workspace=True)
    result = asyncio.run(stage.finish(kept))
    assert result.workspace is not None
    stage.later += WEEK_S - 60
    later = stage.queue(workspace=result.workspace, options={"recording": str(RECORDING)})
    stage.later += 120
    stage.tidy()
    assert stage.made == [kept]  # somebody is about to work there
    asyncio.run(stage.finish(later))
    stage.later += WEEK_S - 60
    stage.tidy()
    assert stage.made == [kept]
    stage.later += 120
    stage.tidy()
    assert stage.made == []


def test_files_and_worktrees_are_brought_over_ssh(tmp_path: Path) -> None:
    need("sshd")
    notes = tmp_path / "allowed" / "notes it's"
    notes.parent.mkdir()
    notes.write_text("before\n")
    roots = json.dumps([str(notes.parent)])
    with (
        Sshd() as sshd,
        logins(sshd, tmp_path / "hosts") as hosts,
        ssh_fleet(tmp_path, hosts, mount_roots=roots) as fleet,
    ):
        fleet.start_worker()
        for login in hosts:
            _bring_over_ssh(fleet, login, notes)


def _bring_over_ssh(fleet: Fleet, login: Login, notes: Path) -> None:
    """To one login: a file, and a worktree of a repository that its agent has made there."""
    recording = RECORDING.read_text().splitlines()

    def run(name: str, tools: str, **fields: Any) -> TurnResult:
        play = login.play(name, recording, tools=tools)
        request = {"workspace": "", "agent": "scripted", "host": login.name, "options": play.options, **fields}
        result = fleet.run(fleet.request(**request))
        assert result.status is Status.COMPLETED, result.error
        return result

    here = login.request(fleet).workspace
    run("setup", "git init -q; git -c user.name=t -c user.email=t@t commit -q --allow-empty -m 1", workspace=here)
    collect = {"patch": True, "files": ["notes"]}
    mounts = [{"host_path": str(notes), "mount_path": "in/notes"}]
    home = home_of(run("mounts", "echo after >>in/notes", mounts=mounts, collect=collect))
    assert "+after\n" in (home.patch or "")
    assert home.files["in/notes"].text == "before\nafter\n"
    home = home_of(run("tree", "echo new >new", worktree={"repository": here}, collect=collect))
    assert "+new\n" in (home.patch or "")
    until(lambda: not list((login.folder / "workspaces").iterdir()), "the workspaces to be removed")
    assert not list(Path(here, ".git").glob("worktrees/*"))


def documented(language: str, test: str) -> str:
    """The block of the documents that this test runs."""
    mark = f"tests/integration/maintenance/test_workspaces.py::{test}"
    blocks = page("docs/producers.md").blocks
    (text,) = [block.text for block in blocks if block.language == language and mark in block.tested_by]
    return text


@pytest.fixture
def application(fleet: Fleet, project: Path) -> Iterator[Path]:
    """What the documents bring, in a repository; their agent writes a report, and changes a file."""
    (project / "src" / "__pycache__").mkdir()
    (project / "src" / "__pycache__" / "main.pyc").write_bytes(b"\0")
    (project / "rules.md").write_text("Be brief.\n")
    git = (need("git"), "-C", str(project), "-c", "user.name=t", "-c", "user.email=t@localhost")
    for command in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-qm", "one")):
        subprocess.run([*git, *command], check=True)
    script = fleet.root / "todo"
    script.write_text(
        "find . -name .git -prune -o -name 'report*' -o -type f -print | sort >report-1.md; echo new >rules.md"
    )
    yield project
    script.unlink()


def placed(text: str, application: Path) -> str:
    """A path of the documents, here."""
    return text.replace("/srv/app", str(application)).replace("/srv/", f"{application}/")


def test_request_of_the_documents_runs(fleet: Fleet, application: Path) -> None:
    document = json.loads(documented("json", "test_request_of_the_documents_runs"))
    for mount in document["mounts"]:
        mount["host_path"] = placed(mount["host_path"], application)
    result = fleet.run(TurnRequest.parse(document))
    assert result.status is Status.COMPLETED, result.error
    home = home_of(result)
    assert home.files["report-1.md"].text == "./app/src/main.py\n./app/src/main.pyc\n./rules.md\n"
    assert "-Be brief.\n+new\n" in (home.patch or "")


def test_commands_of_the_documents_run(fleet: Fleet, application: Path) -> None:
    plain, as_json = [
        fleet.command(*(placed(word, application) for word in shlex.split(line)[1:]))
        for line in documented("sh", "test_commands_of_the_documents_run").splitlines()
    ]
    assert (plain.returncode, as_json.returncode) == (0, 0), plain.stderr + as_json.stderr
    assert re.search(r"collected: a patch of \d+ lines; see --json", plain.stdout)
    home = home_of(TurnResult.model_validate_json(as_json.stdout))
    assert "-Be brief.\n+new\n" in (home.patch or "")
    assert "./src/main.py\n" in (home.files["report-1.md"].text or "")


def test_claude_code_is_resumed_in_its_worktree_and_by_the_next_turn(tmp_path: Path) -> None:
    script = Script(
        "worktree",
        (
            Reply((replies.bash("echo one >>notes"),), Usage(100, 20)),
            Reply((Text("cut off"),), Usage(300, 50), hold=Hold("worktree", 1)),
            Reply((replies.bash("echo two >>notes"),), Usage(400, 60)),
            Reply((Text("went on"),), Usage(500, 70)),
            Reply((Text("next"),), Usage(600, 80)),
        ),
    )
    repository = tmp_path / "repository"
    repository.mkdir()
    git = (need("git"), "-C", str(repository), "-c", "user.name=t", "-c", "user.email=t@localhost")
    for command in (("init", "-q"), ("commit", "-q", "--allow-empty", "-m", "one")):
        subprocess.run([*git, *command], check=True)
    options = {"permission_mode": "bypassPermissions"}
    with claude_fleet(tmp_path, script) as (fleet, api):
        fields = {"worktree": {"repository": str(repository)}, "collect": {"patch": True}, "keep_workspace": True}
        request = fleet.request("do it [script:worktree]", workspace="", options=options, **fields)
        turn_id = fleet.client.enqueue(request)
        api.gate("worktree").wait_until_reached()
        (agent,) = fleet.agents()
        os.kill(agent, signal.SIGTERM)
        result = fleet.result(turn_id)
        assert (result.status, result.text, result.attempts) == (Status.COMPLETED, "went on", 2), result.error
        assert "+one\n+two\n" in (home_of(result).patch or "")
        again = fleet.request(
            "go on [script:worktree]", workspace=result.workspace, session_id=result.session_id, options=options
        )
        assert fleet.run(again).text == "next"
