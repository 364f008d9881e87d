"""The real Claude Code at each level of isolation: the same turns, the same bill, and walls that hold."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from adapters.isolation import Isolation
from adapters.protocol.result import Status, TurnResult
from tests.fakes.model_api import ModelApi, Reply, Script, Text, Usage, replies
from tests.fakes.model_api.cli import claude_binary, claude_environment
from tests.support.fleets.fleet import Fleet
from tests.support.needs import need, need_namespaces

SONNET = "claude-sonnet-4-5"
DAEMON = "setsid env -i sh -c 'sleep 600; touch escaped' >/dev/null 2>&1 & echo started"
LOOK = 'cat ~/.ssh/key "$RUNTURN_SPOOL/prompt"; echo new >file; git init -q . && git add file && echo added'


def script(name: str, *commands: str) -> Script:
    """Runs these commands, one by one, then answers."""
    steps = [Reply((replies.bash(command),), Usage(100, 20, 30, 4)) for command in commands]
    return Script(name, (*steps, Reply((Text(f"done with {name}"),), Usage(200, 22, 40, 9))))


@pytest.fixture(params=[Isolation.NAMESPACE, Isolation.SANDBOX])
def level(request: pytest.FixtureRequest) -> Isolation:
    """Each level that the kernel sees to."""
    need_namespaces()
    need("bwrap")
    return Isolation(request.param)


@contextmanager
def isolated(root: Path, level: Isolation, *scripts: Script) -> Iterator[tuple[Fleet, ModelApi]]:
    """A fleet whose agents are isolated like this."""
    (home := root / "home").mkdir(parents=True)
    with ModelApi(*scripts) as api:
        environment = {**claude_environment(api.base_url, home, max_retries=1), "IS_SANDBOX": "1"}
        with Fleet(root, environment, agent__command=str(claude_binary()), isolation=level) as fleet:
            fleet.start_worker()
            yield fleet, api


def run(fleet: Fleet, api: ModelApi, name: str, **fields: object) -> TurnResult:
    """A turn that completes, with its exact bill."""
    result = fleet.run(fleet.request(f"do it [script:{name}]", options={"model": SONNET}, **fields))
    assert (result.status, result.text, result.attempts) == (Status.COMPLETED, f"done with {name}", 1), (
        result.error
    )
    billed, booked = api.bill(name).by_model[SONNET], result.usage.by_model[SONNET]
    assert (booked.input_tokens, booked.output_tokens) == (billed.input, billed.output)
    assert result.usage_complete
    return result


def test_turns_of_a_session_run_as_without_isolation(tmp_path: Path, level: Isolation) -> None:
    with isolated(tmp_path / "fleet", level, script("first", LOOK), script("second")) as (fleet, api):
        secret = tmp_path / "fleet/home/.ssh/key"
        secret.parent.mkdir()
        secret.write_text("the key")
        first = run(fleet, api, "first")
        second = run(fleet, api, "second", session_id=first.session_id)
        assert second.session_id == first.session_id
        shown = [event for event in fleet.events(first.turn_id) if event["event"] == "tool_finished"]
        assert "added" in str(shown)
        assert ("the key" in str(shown)) is (level is not Isolation.SANDBOX)
        assert (fleet.workspace / "file").read_text() == "new\n"
        fleet.assert_nothing_left()


def test_turn_commits_in_the_worktree_it_brings(tmp_path: Path, level: Isolation) -> None:
    repository = tmp_path / "a repo's"
    named = (need("git"), "-c", "user.name=t", "-c", "user.email=t@localhost", "-C", str(repository))
    repository.mkdir()
    for command in (("init", "-q"), ("commit", "-q", "--allow-empty", "-m", "one")):
        subprocess.run([*named, *command], check=True)
    commit = "git -c user.name=a -c user.email=a@b commit -qm two && git log --format=%s && git status --short"
    with isolated(tmp_path / "fleet", level, script("commit", f"echo new >file; git add file; {commit}")) as place:
        fleet, api = place
        brought = {"worktree": {"repository": str(repository)}, "collect": {"patch": True}, "keep_workspace": True}
        result = run(fleet, api, "commit", workspace="", **brought)
        shown = [event for event in fleet.events(result.turn_id) if event["event"] == "tool_finished"]
        assert "two\\none" in json.dumps(shown)
        assert result.collected is not None
        assert "+new\n" in (result.collected.patch or "")
        assert result.workspace is not None
        log = subprocess.check_output([*named[:-2], "-C", result.workspace, "log", "--format=%s"], text=True)
        assert log.split() == ["two", "one"]
        fleet.assert_nothing_left()


def test_daemon_of_a_tool_ends_with_its_turn(tmp_path: Path, level: Isolation) -> None:
    with isolated(tmp_path / "fleet", level, script("daemon", DAEMON)) as (fleet, api):
        run(fleet, api, "daemon")
        fleet.assert_nothing_left()


def test_turn_that_takes_too_much_memory_fails_by_name_and_is_billed(tmp_path: Path, level: Isolation) -> None:
    greedy = "head -c 3G /dev/zero | tail -n 1"  # without a newline, tail keeps all of it
    with isolated(tmp_path / "fleet", level, script("greedy", greedy)) as (fleet, api):
        request = fleet.request("do it [script:greedy]", options={"model": SONNET}, max_memory="1GiB")
        result = fleet.run(request)
        assert result.error is not None
        assert (result.error.kind, result.attempts) == ("memory_exceeded", 1)
        assert result.usage.by_model[SONNET].output_tokens == api.bill("greedy").by_model[SONNET].output
        fleet.assert_nothing_left()
