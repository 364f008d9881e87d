"""The real Claude Code on two hosts over SSH: its bill, its sessions, and its sudden death."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from adapters.protocol.request import TurnRequest
from adapters.protocol.result import Status, TurnResult
from tests.fakes.model_api import Hold, ModelApi, Reply, Script, Text, Usage, replies
from tests.fakes.model_api.cli import claude_environment
from tests.integration.conftest import claude_fleet
from tests.integration.turns.test_bills import SONNET, billed, booked, in_ledger, prompts
from tests.support.fleets.fleet import Fleet
from tests.support.processes import signed
from tests.support.ssh.ssh_host import assert_nothing_left, ssh_host, ssh_hosts
from tests.support.ssh.ssh_logins import Login
from tests.support.waiting import text_of, until

# All usages differ, so that no sum is right by accident.
SCRIPTS = (
    Script(
        "tools",
        (
            Reply((Text("both"), replies.bash("echo one"), replies.bash("echo two")), Usage(1000, 200, 3000, 500)),
            Reply((Text("done"),), Usage(50, 30, 4500, 260)),
        ),
    ),
    Script(
        "resumed",
        tuple(
            Reply((Text(text),), Usage(10 + n, 12, 13, 14)) for n, text in enumerate(("first", "second", "third"))
        ),
    ),
    Script(
        "killed",
        (
            Reply((replies.bash("echo a"),), Usage(100, 20, 30, 4)),
            Reply((Text("cut off"),), Usage(300, 50, 50, 6), hold=Hold("killed", 1)),
            Reply((Text("went on"),), Usage(400, 60, 70, 8)),
        ),
    ),
    Script(
        "given-up",
        (
            Reply((replies.bash("echo a"),), Usage(101, 21, 31, 5)),
            Reply((Text("cut off"),), Usage(301, 51, 51, 7), hold=Hold("given-up", 1)),
        ),
    ),
    Script(
        "overspent",
        (
            Reply((replies.bash("touch allowed"),), Usage(1000, 20, 30, 4)),
            Reply(
                (Text("going on"), replies.bash("touch denied")), Usage(2000, 21, 31, 5), hold=Hold("overspent", 1)
            ),
        ),
    ),
    Script(
        "nosy",
        (
            Reply((replies.bash("env | sed 's/=.*//' >names"),), Usage(10, 1)),
            Reply((Text("done"),), Usage(20, 2)),
        ),
    ),
)
_OWN = {"PATH", "HOME", "CLAUDE_CONFIG_DIR"}  # of the worker's machine: hosts have theirs
_FORWARDED = sorted(claude_environment("", Path("/"), max_retries=1).keys() - _OWN)


@dataclass(frozen=True, slots=True)
class Place:
    """A fleet with one worker, two hosts, and the API that its agents talk to."""

    fleet: Fleet
    hosts: dict[str, Login]
    api: ModelApi

    def ask(self, script: str, **fields: Any) -> TurnRequest:
        """A request whose API calls go to that script."""
        return self.fleet.request(f"do it [script:{script}]", options={"model": SONNET}, **fields)

    def killed(self, script: str, **fields: Any) -> TurnResult:
        """What comes of a turn on h1 whose agent is killed in the middle of an answer."""
        turn_id = self.fleet.client.enqueue(self.ask(script, host="h1", **fields))
        self.api.gate(script).wait_until_reached()
        until(lambda: prompts(self.fleet, turn_id)[1:], "the beginning of the message in flight")
        psutil.Process(signed(self.hosts["h1"].spools / f"{turn_id}.1", "agent")).kill()
        return self.fleet.result(turn_id)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    root = tmp_path_factory.mktemp("claude")
    with ExitStack() as stack:
        logins = [stack.enter_context(ssh_host(name, root)) for name in ("h1", "h2")]
        hosts = ssh_hosts(*(login.setting(env=_FORWARDED) for login in logins))
        variables = {"OF_TURN": "1", "WITHHELD": "2", "DEPLOY_TOKEN": "of-the-worker"}
        fleet, api = stack.enter_context(claude_fleet(root, *SCRIPTS, environment=variables, ssh_hosts=hosts))
        yield Place(fleet, {login.name: login for login in logins}, api)


def test_completed_turn_is_booked_as_it_was_billed(place: Place) -> None:
    result = place.fleet.run(place.ask("tools", host="h2"))
    assert (result.status, result.text, result.host) == (Status.COMPLETED, "done", "h2"), result.error
    assert (result.usage_source, result.cost_usd) == ("result", pytest.approx(0.0117))
    assert (
        booked(result)
        == in_ledger(place.fleet, result.turn_id)
        == billed(place.api, "tools")
        == {SONNET: (1050, 230, 7500, 760)}
    )


def test_session_goes_on_where_it_began_without_being_told(place: Place) -> None:
    first = place.fleet.run(place.ask("resumed", host="h2"))
    later = [place.fleet.run(place.ask("resumed", session_id=first.session_id)) for _ in range(2)]
    assert [result.text for result in (first, *later)] == ["first", "second", "third"]
    assert {(result.host, result.session_id) for result in later} == {("h2", first.session_id)}
    files = {name: list(login.sshd.home.rglob(f"{first.session_id}.jsonl")) for name, login in place.hosts.items()}
    assert {name: len(found) for name, found in files.items()} == {"h1": 0, "h2": 1}
    assert [booked(result)[SONNET][0] for result in (first, *later)] == [10, 11, 12]
    assert billed(place.api, "resumed") == {SONNET: (33, 36, 39, 42)}


def test_killed_agent_is_resumed_on_its_host_and_all_of_it_is_booked(place: Place) -> None:
    result = place.killed("killed")
    assert (result.status, result.text, result.attempts) == (Status.COMPLETED, "went on", 2)
    sessions = [event for event in place.fleet.events(result.turn_id) if event["event"] == "session_started"]
    assert [event["session_id"] for event in sessions] == [result.session_id] * 2
    # The message in flight was billed for its input, too, and for what was written of it: nobody can see how much.
    assert (result.usage_source, result.usage_complete) == ("session_files", False)
    assert in_ledger(place.fleet, result.turn_id) == booked(result) == billed(place.api, "killed")
    assert booked(result) == {SONNET: (800, 81, 150, 18)}


def test_killed_agent_without_another_attempt_is_booked_from_its_session_files(place: Place) -> None:
    result = place.killed("given-up", max_attempts=1)
    assert result.error is not None
    assert (result.error.kind, result.exit_code, result.attempts) == ("turn_cancelled", 137, 1)
    assert (result.usage_source, result.usage_complete) == ("session_files", False)
    assert in_ledger(place.fleet, result.turn_id) == booked(result) == billed(place.api, "given-up")


def test_tools_see_no_variable_of_the_worker_that_was_not_named(place: Place) -> None:
    result = place.fleet.run(place.ask("nosy", env=["OF_TURN"]))
    assert result.status is Status.COMPLETED
    seen = set((place.fleet.workspace / "names").read_text().split())
    assert seen >= {"OF_TURN", "HOME", "ANTHROPIC_BASE_URL"}
    assert not seen & {"WITHHELD", "DEPLOY_TOKEN", "RUNTURN_STATE_DIR", "CLAUDE_CONFIG_DIR"}


def test_nothing_of_all_this_is_left(place: Place) -> None:
    for login in place.hosts.values():
        assert_nothing_left(login)


def test_agent_over_its_tokens_is_denied_its_next_tool_and_ends_by_itself(place: Place) -> None:
    turn_id = place.fleet.client.enqueue(place.ask("overspent", host="h2", max_total_tokens=1500))
    until(lambda: text_of(place.hosts["h2"].spools / f"{turn_id}.1" / "files/stop"), "the soft stop")
    place.api.gate("overspent").release()
    result = place.fleet.result(turn_id)
    assert result.error is not None
    assert (result.error.kind, result.text, result.exit_code) == ("budget_exceeded", "going on", 0)
    assert (place.fleet.workspace / "allowed").exists()
    assert not (place.fleet.workspace / "denied").exists()
    assert booked(result) == in_ledger(place.fleet, turn_id) == billed(place.api, "overspent")
