"""The real Codex through the queue, here and over SSH: its bill, its threads, its ends."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from adapters.protocol.request import TurnRequest
from adapters.protocol.result import Status, TurnResult
from tests.fakes.model_api import Branch, Hold, HttpError, Reply, Script, Text, Usage
from tests.fakes.openai_api import MODEL, OpenAiApi, codex_environment, shell, spawn
from tests.fakes.openai_api.cli import configure
from tests.integration.turns.test_bills import booked, in_ledger
from tests.support.fleets.fleet import Fleet
from tests.support.npm import npm_agent
from tests.support.processes import gone, signed
from tests.support.ssh.ssh_host import assert_nothing_left, ssh_host, ssh_hosts
from tests.support.ssh.ssh_logins import Login
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(300)

HOSTS = ("local", "h1")
SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}
UNAUTHORIZED = HttpError(401, "invalid_api_key", "Incorrect API key provided")
DOWN = HttpError(500, "server_error", "down")
# A tool that no gentle signal ends, and that takes a session of its own.
STUBBORN = "(setsid sh -c 'trap \"\" TERM INT HUP; sleep 300' &) ; echo up; sleep 300"


def scripts(host: str) -> list[Script]:
    """All usages differ, so that no sum is right by accident."""
    return [
        Script(
            f"tools-{host}",
            (
                Reply((Text("I look."), shell("echo hello >made; cat made")), Usage(1000, 200, 3000, 500)),
                Reply((Text("done"),), Usage(50, 30, 4500, 260)),
            ),
        ),
        Script(f"unauthorized-{host}", (UNAUTHORIZED,) * 9),
        Script(f"failing-{host}", (Reply((shell("true"),), Usage(70, 8, 9, 1)), *(DOWN,) * 9)),
        Script(
            f"resumed-{host}",
            tuple(Reply((Text(text),), Usage(10 + n, 12, 13, 14)) for n, text in enumerate(("first", "second"))),
        ),
        Script(f"cancelled-{host}", (Reply((shell(STUBBORN),), Usage(100, 20, 30, 4)),)),
        Script(
            f"inherited-{host}",
            (
                Reply((shell("echo a"),), Usage(101, 21, 31, 5)),
                Reply((Text("went on"),), Usage(301, 51, 51, 7), hold=Hold(f"inherited-{host}", 1)),
            ),
        ),
        Script(
            f"killed-{host}",
            (
                Reply((shell("echo a"),), Usage(102, 22, 32, 6)),
                Reply((Text("cut off"),), Usage(302, 52, 52, 8), hold=Hold(f"killed-{host}", 1)),
                Reply((Text("went on"),), Usage(402, 62, 72, 8)),
            ),
        ),
        Script(
            f"subagent-{host}",
            (
                Reply((spawn("helper"),), Usage(120, 45, 33, 7)),
                Reply((Text("main done"),), Usage(130, 46, 34, 8), hold=Hold(f"subagent-{host}")),
            ),
            branches=(Branch((Reply((Text("sub done"),), Usage(300, 60, 10, 5)),), name="helper"),),
        ),
        Script(
            f"sandboxed-{host}",
            (Reply((shell("printf 1 >inside"),), Usage(5, 6)), Reply((Text("done"),), Usage(5, 6))),
        ),
        Script(f"schema-{host}", (Reply((Text('{"n": 3}'),), Usage(5, 6)), Reply((Text("no"),), Usage(5, 6)))),
    ]


@dataclass(frozen=True, slots=True)
class Place:
    """A fleet with a worker, its own machine and one over SSH, and the API that its agents talk to."""

    fleet: Fleet
    login: Login
    api: OpenAiApi
    inherited: dict[str, str] = field(default_factory=dict)  # turns that a killed worker has left, by host

    def leave_to_the_next_worker(self) -> None:
        """Turns in the middle of an answer whose worker is killed: their claims have to run out first."""
        worker = self.fleet.start_worker()
        for host in HOSTS:
            self.inherited[host] = self.fleet.client.enqueue(self.ask("inherited", host))
        for host in HOSTS:
            self.api.gate(f"inherited-{host}").wait_until_reached(60)
        worker.kill()
        for host in HOSTS:
            self.api.gate(f"inherited-{host}").release()

    def ask(self, script: str, host: str, **fields: Any) -> TurnRequest:
        """A request whose API calls go to that script."""
        options = {"sandbox": "danger-full-access", **fields.pop("options", {})}
        prompt = f"do it [script:{script}-{host}]"
        return self.fleet.request(prompt, agent="codex", host=host, options=options, **fields)

    def run(self, script: str, host: str, **fields: Any) -> TurnResult:
        """Its result."""
        return self.fleet.run(self.ask(script, host, **fields))

    def billed(self, script: str, host: str) -> dict[str, tuple[int, ...]]:
        """What the API says, in the form of `booked`."""
        bill = self.api.wait_until_idle(f"{script}-{host}")
        return {
            model: (used.input, used.output, used.cache_read, used.cache_creation)
            for model, used in bill.by_model.items()
        }

    def spools(self, host: str) -> Path:
        """Where a host's turns are."""
        return self.fleet.state.spool if host == "local" else self.login.spools

    def names(self, turn_id: str) -> list[str]:
        """Of its events so far."""
        return [event["event"] for event in self.fleet.events(turn_id)]

    def assert_nothing_left(self, host: str) -> None:
        """No process, no spool."""
        if host == "local":
            self.fleet.assert_nothing_left()
        else:
            assert_nothing_left(self.login)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    codex = npm_agent("codex")
    root = tmp_path_factory.mktemp("codex")
    home = root / "home"
    home.mkdir()
    with ExitStack() as stack:
        login = stack.enter_context(ssh_host("h1", root))
        api = stack.enter_context(OpenAiApi(*(script for host in HOSTS for script in scripts(host))))
        configure(api.base_url, login.sshd.home)
        environment = codex_environment(api.base_url, home)
        environment["PATH"] = os.pathsep.join((str(codex.parent), *without_bwrap(environment["PATH"], root)))
        hosts = ssh_hosts(login.setting(agents={"codex": str(codex)}, env=["CODEX_API_KEY"]))
        fleet = stack.enter_context(Fleet(root, environment, ssh_hosts=hosts))
        place = Place(fleet, login, api)
        place.leave_to_the_next_worker()
        fleet.start_worker()
        yield place


def without_bwrap(path: str, root: Path) -> Iterator[str]:
    """Codex prefers the system's bubblewrap to its own, and then needs helpers that it does not make in /tmp."""
    for number, folder in enumerate(path.split(os.pathsep)):
        if not Path(folder, "bwrap").exists():
            yield folder
            continue
        programs = root / f"programs-{number}"
        programs.mkdir()
        for program in Path(folder).iterdir():
            if program.name != "bwrap":
                (programs / program.name).symlink_to(program)
        yield str(programs)


both = pytest.mark.parametrize("host", HOSTS)


@both
def test_completed_turn_is_booked_as_it_was_billed(place: Place, host: str) -> None:
    result = place.run("tools", host)
    assert (result.status, result.text, result.host) == (Status.COMPLETED, "done", host), result.error
    assert result.agent_version == "0.169.0"  # which its stream does not tell
    assert (result.usage_source, result.usage_complete) == ("session_files", True)
    expected = {MODEL: (1050, 230, 7500, 760)}
    assert booked(result) == in_ledger(place.fleet, result.turn_id) == place.billed("tools", host) == expected
    assert result.cost_usd == pytest.approx((1050 * 2 + 230 * 10 + 7500 * 0.1 + 760 * 2.5) / 1e6)
    tools = [event for event in place.fleet.events(result.turn_id) if event["event"].startswith("tool_")]
    assert [event["tool"] for event in tools] == ["command_execution"] * 2


@both
def test_refused_key_fails_the_turn_and_costs_nothing(place: Place, host: str) -> None:
    result = place.run("unauthorized", host)
    assert result.error is not None
    assert (result.error.kind, result.attempts, result.exit_code) == ("authentication_failed", 1, 1)
    assert booked(result) == place.billed("unauthorized", host) == {}
    assert result.usage_complete


@both
def test_turn_that_fails_halfway_is_booked_as_it_was_billed(place: Place, host: str) -> None:
    result = place.run("failing", host, max_attempts=1)
    assert result.error is not None
    assert (result.error.kind, result.usage_source, result.usage_complete) == ("overloaded", "session_files", True)
    assert booked(result) == place.billed("failing", host) == {MODEL: (70, 8, 9, 1)}


@both
def test_thread_goes_on_and_each_turn_pays_its_own(place: Place, host: str) -> None:
    first = place.run("resumed", host)
    later = place.run("resumed", host, session_id=first.session_id)
    assert [result.text for result in (first, later)] == ["first", "second"]
    assert first.session_id is not None
    assert later.session_id == first.session_id
    assert [booked(result) for result in (first, later)] == [{MODEL: (10, 12, 13, 14)}, {MODEL: (11, 12, 13, 14)}]
    row = place.fleet.ledger.sessions.find(first.session_id)
    assert row is not None
    assert (row.agent, row.host, row.locked_by) == ("codex", host, None)


@both
def test_cancelled_turn_leaves_nothing_and_its_bill_is_known(place: Place, host: str) -> None:
    turn_id = place.fleet.client.enqueue(place.ask("cancelled", host))
    until(lambda: "tool_started" in place.names(turn_id), "the tool")
    place.fleet.client.cancel(turn_id)
    result = place.fleet.result(turn_id)
    assert (result.status, result.usage_source, result.usage_complete) == (Status.CANCELLED, "session_files", True)
    assert booked(result) == place.billed("cancelled", host) == {MODEL: (100, 20, 30, 4)}
    place.assert_nothing_left(host)


@both
def test_killed_agent_is_resumed_in_its_thread(place: Place, host: str) -> None:
    turn_id = place.fleet.client.enqueue(place.ask("killed", host))
    place.api.gate(f"killed-{host}").wait_until_reached(60)
    agent = psutil.Process(signed(place.spools(host) / f"{turn_id}.1", "agent"))
    below = agent.children(recursive=True)  # before 22.15, Node.js stays around the program, which outlives it
    agent.kill()
    result = place.fleet.result(turn_id)
    assert (result.status, result.text, result.attempts) == (Status.COMPLETED, "went on", 2), result.error
    told = [event["session_id"] for event in place.fleet.events(turn_id) if event["event"] == "session_started"]
    assert told == [result.session_id] * 2
    assert all(map(gone, below))
    # The answer in flight was billed for its input; nobody could see that, and the result says so.
    assert (result.usage_source, result.usage_complete) == ("session_files", False)
    assert booked(result) == in_ledger(place.fleet, turn_id) == {MODEL: (504, 84, 104, 14)}


@both
def test_subagents_are_on_the_bill(place: Place, host: str) -> None:
    turn_id = place.fleet.client.enqueue(place.ask("subagent", host))
    place.api.wait_for_requests(f"subagent-{host}", 3, 60)
    place.api.gate(f"subagent-{host}").release()
    result = place.fleet.result(turn_id)
    assert (result.status, result.text, result.usage_complete) == (Status.COMPLETED, "main done", True)
    assert booked(result) == place.billed("subagent", host) == {MODEL: (550, 151, 77, 20)}


def test_structured_output_is_given_or_missed(place: Place) -> None:
    given, missed = (place.run("schema", "h1", output_schema=SCHEMA) for _ in range(2))
    assert (given.status, given.structured_output) == (Status.COMPLETED, {"n": 3})
    assert missed.error is not None
    assert missed.error.kind == "structured_output_missing"


def test_api_that_cannot_be_reached_is_not_waited_for(place: Place) -> None:
    nowhere = {"config": {"model_providers.scripted.base_url": "http://127.0.0.1:9/v1"}}
    result = place.run("nowhere", "local", options=nowhere, stall_timeout_ms=2_000, max_attempts=1)
    assert result.error is not None
    assert (result.error.kind, result.attempts) == ("turn_stalled", 1)
    assert booked(result) == {}


def test_sandboxed_command_writes_in_its_workspace(place: Place) -> None:
    result = place.run("sandboxed", "local", options={"sandbox": "workspace-write"})
    assert result.status is Status.COMPLETED, result.error
    errors = [event["error"] for event in place.fleet.events(result.turn_id) if event["event"] == "tool_finished"]
    if any(error and "bwrap" in error for error in errors):
        pytest.skip("Codex's sandbox does not work in here")
    assert (place.fleet.workspace / "inside").read_text() == "1"


@both
def test_turn_of_a_killed_worker_is_taken_over_and_booked_once(place: Place, host: str) -> None:
    turn_id = place.inherited[host]
    result = place.fleet.result(turn_id)
    assert (result.status, result.text, result.attempts) == (Status.COMPLETED, "went on", 1), result.error
    expected = {MODEL: (402, 72, 82, 12)}
    assert booked(result) == in_ledger(place.fleet, turn_id) == place.billed("inherited", host) == expected
    assert place.names(turn_id).count("session_started") == 1


@both
def test_nothing_of_all_this_is_left(place: Place, host: str) -> None:
    place.assert_nothing_left(host)
