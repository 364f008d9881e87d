"""The real Gemini CLI on this machine and over SSH: what is booked is what its API billed, and nothing is left."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from adapters.protocol.request import TurnRequest
from adapters.protocol.result import Status, TurnResult
from tests.fakes.gemini_api import GeminiApi
from tests.fakes.gemini_api.cli import gemini_environment, write_settings
from tests.fakes.model_api import Hold, HttpError, Reply, Script, Text, Thinking, ToolUse, Usage
from tests.integration.turns.test_bills import booked, in_ledger
from tests.support.fleets.fleet import Fleet
from tests.support.npm import npm_agent
from tests.support.processes import describe, of_turn
from tests.support.ssh.ssh_host import assert_nothing_left, ssh_host, ssh_hosts
from tests.support.ssh.ssh_logins import Login
from tests.support.waiting import lines_of, until

pytestmark = pytest.mark.timeout(300)
PRO = "gemini-2.5-pro"


def shell(command: str) -> ToolUse:
    """A call of the CLI's shell."""
    return ToolUse("run_shell_command", {"command": command, "description": "scripted"})


BUSY = HttpError(503, "UNAVAILABLE", "The model is overloaded. Please try again later.")
SLOW = shell("setsid sh -c 'trap \"\" TERM INT HUP; echo up >up; sleep 300' & sleep 300")
FAILURES = {
    "key": (HttpError(400, "INVALID_ARGUMENT", "API key not valid."), "authentication_failed"),
    "quota": (HttpError(429, "RESOURCE_EXHAUSTED", "Quota exceeded: requests per day"), "out_of_tokens"),
}

# Each script is chosen by its marker in the prompt. All usages differ, so that no sum is right by accident.
SCRIPTS = (
    *(
        Script(
            f"tools-{host}",
            (
                Reply(
                    (Thinking("hm"), Text("both"), shell("echo one"), shell("false")), Usage(1000 + n, 200, 3000)
                ),
                Reply((Text("done"),), Usage(50, 30, 4500)),
            ),
        )
        for n, host in enumerate(("local", "h1"))
    ),
    Script("resumed", (Reply((Text("first"),), Usage(11, 12, 13)), Reply((Text("second"),), Usage(21, 22, 23)))),
    *(Script(name, (error,)) for name, (error, _) in FAILURES.items()),
    Script("fresh", (BUSY, Reply((Text("at last"),), Usage(31, 32, 33)))),
    Script(
        "kept",
        (Reply((shell("echo a"),), Usage(41, 42, 43)), BUSY, Reply((Text("at last"),), Usage(51, 52, 53))),
    ),
    Script(
        "looped", (*(Reply((shell("true"),), Usage(200 + n, 20, 30)) for n in range(5)), Reply((Text("out"),)))
    ),
    Script("empty", (Reply((), Usage(54, 55, 56)), Reply((Text("at last"),), Usage(57, 58, 59)))),
    *(
        Script(f"cancelled-{host}", (Reply((Thinking("hm"), SLOW), Usage(100 + n, 20, 30)),))
        for n, host in enumerate(("local", "h1"))
    ),
    Script(
        "planned",
        (
            Reply((shell("touch changed"),), Usage(71, 72, 73)),
            Reply((Text('```json\n{"tasks": [{"title": "first"}]}\n```'),), Usage(81, 82, 83)),
        ),
    ),
    Script("taken-over", (Reply((Text("all"), Text(" of it")), Usage(61, 62, 63), hold=Hold("taken-over", 1)),)),
)


@dataclass(frozen=True, slots=True)
class Place:
    """A fleet with one worker, two hosts, and the API that its agents talk to.

    All turns that need nobody run at once, and beside one whose worker was killed: its claim takes its time.
    """

    fleet: Fleet
    login: Login
    api: GeminiApi
    turns: dict[str, str] = field(default_factory=dict)  # by script

    def begin(self) -> None:
        """Start the turns, the first of them with a worker that does not live to see its end."""
        self.turns["taken-over"] = self.fleet.client.enqueue(self.ask("taken-over"))
        self.api.gate("taken-over").wait_until_reached()
        self.fleet.workers[-1].kill()
        for script in ("resumed", "fresh", "kept", "empty", "looped", "tools-h1", "cancelled-h1", *FAILURES):
            self.turns[script] = self.fleet.client.enqueue(self.ask(script))
        self.turns["planned"] = self.fleet.client.enqueue(self.ask("planned", plan=True))
        for script in ("tools-local", "cancelled-local"):
            self.turns[script] = self.fleet.client.enqueue(self.ask(script, "local"))
        self.fleet.start_worker()

    def result(self, script: str) -> TurnResult:
        """What came of a turn that was started."""
        return self.fleet.result(self.turns[script])

    def ask(self, script: str, host: str = "h1", prompt: str = "do it", **fields: Any) -> TurnRequest:
        """A request whose API calls go to that script."""
        told: dict[str, Any] = {"agent": "gemini", "options": {"model": PRO}, **fields}
        prompt = f"{prompt} [script:{script}]"
        if host == "h1":
            return self.login.request(self.fleet, prompt, **told)
        return self.fleet.request(prompt, host=host, **told)

    def billed(self, script: str) -> dict[str, tuple[int, int, int, int]]:
        """What the API charged for a script."""
        bill = self.api.bill(script).by_model
        return {model: (used.input, used.output, used.cache_read, 0) for model, used in bill.items()}

    def assert_booked_as_billed(self, result: TurnResult, script: str) -> None:
        assert booked(result) == in_ledger(self.fleet, result.turn_id) == self.billed(script) != {}
        assert result.cost_usd is not None

    def workspace(self, host: str) -> Path:
        return self.login.folder / "workspace" if host == "h1" else self.fleet.workspace

    def spool(self, script: str, host: str) -> Path:
        """Where its first attempt is."""
        root = self.login.spools if host == "h1" else self.fleet.state.spool
        return root / f"{self.turns[script]}.1"

    def sessions(self, turn_id: str) -> list[str]:
        """Of its attempts."""
        events = self.fleet.events(turn_id)
        return [event["session_id"] for event in events if event["event"] == "session_started"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    program = npm_agent("gemini")
    root = tmp_path_factory.mktemp("gemini")
    with ExitStack() as stack:
        api = stack.enter_context(GeminiApi(*SCRIPTS))
        login = stack.enter_context(ssh_host("h1", root))
        for home in (root / "home", login.sshd.home):
            write_settings(home)
        variables = gemini_environment(api.base_url, root / "home")
        variables["PATH"] = f"{program.parent}{os.pathsep}{variables['PATH']}"
        host = login.setting(agents={"gemini": str(program)}, env=["GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL"])
        fleet = stack.enter_context(Fleet(root, variables, ssh_hosts=ssh_hosts(host)))
        fleet.start_worker()
        place = Place(fleet, login, api)
        place.begin()
        yield place


@pytest.mark.parametrize("host", ["local", "h1"])
def test_turn_with_tools_is_booked_as_it_was_billed(place: Place, host: str) -> None:
    result = place.result(f"tools-{host}")
    assert (result.status, result.text, result.host) == (Status.COMPLETED, "done", host), result.error
    assert (result.usage_source, result.usage_complete) == ("result", True)
    place.assert_booked_as_billed(result, f"tools-{host}")
    tools = [event["tool"] for event in place.fleet.events(result.turn_id) if event["event"] == "tool_finished"]
    assert tools == ["run_shell_command"] * 2


def test_session_goes_on_where_it_began_and_text_stays_text(place: Place) -> None:
    """A file that a prompt seems to name is not read into it; a second turn is billed for itself alone."""
    first = place.result("resumed")
    (place.workspace("h1") / "notes.txt").write_text("never asked for")
    again = place.ask("resumed", prompt="/help @notes.txt", session_id=first.session_id)
    second = place.fleet.run(again)
    assert [first.text, second.text] == ["first", "second"], second.error
    assert second.session_id == first.session_id
    assert (booked(first), booked(second)) == ({PRO: (11, 12, 13, 0)}, {PRO: (21, 22, 23, 0)})
    asked = place.api.bill("resumed").requests[-1].prompt
    assert r"/help \@notes.txt [script:resumed]" in asked
    assert "never asked for" not in asked


@pytest.mark.parametrize("name", FAILURES)
def test_failure(place: Place, name: str) -> None:
    result = place.result(name)
    assert result.error is not None
    assert (result.error.kind, result.attempts) == (FAILURES[name][1], 1)
    assert booked(result) == {}


def test_first_run_that_failed_is_tried_again_in_another_session(place: Place) -> None:
    """The CLI refuses the id of a session that no model has ever answered in, and cannot resume it either."""
    result = place.result("fresh")
    assert (result.status, result.text, result.attempts) == (Status.COMPLETED, "at last", 2), result.error
    first, second = place.sessions(result.turn_id)
    assert first != second == result.session_id
    place.assert_booked_as_billed(result, "fresh")


def test_turn_that_failed_after_an_answer_goes_on_in_its_session(place: Place) -> None:
    result = place.result("kept")
    assert (result.status, result.text, result.attempts) == (Status.COMPLETED, "at last", 2), result.error
    assert place.sessions(result.turn_id) == [result.session_id] * 2
    place.assert_booked_as_billed(result, "kept")


def test_session_that_was_billed_and_cannot_be_resumed_is_begun_anew(place: Place) -> None:
    """The CLI keeps no session of an answer that had nothing in it; that shows when it is to be resumed."""
    result = place.result("empty")
    assert (result.status, result.text, result.attempts) == (Status.COMPLETED, "at last", 3), result.error
    events = place.fleet.events(result.turn_id)
    ended = [event["error_kind"] for event in events if event["event"] == "attempt_ended"]
    assert ended == ["api_unreachable", "session_not_found", None]
    first, second = place.sessions(result.turn_id)
    assert first != second == result.session_id
    assert booked(result) == place.billed("empty") == {PRO: (111, 113, 115, 0)}


def test_turn_that_went_on_after_a_loop_says_that_its_bill_may_be_short(place: Place) -> None:
    """Its session file tells of the answer that was broken off, and nothing that was printed does."""
    result = place.result("looped")
    assert (result.status, result.text) == (Status.COMPLETED, "out"), result.error
    assert (result.usage_source, result.usage_complete) == ("result", False)
    [(model, used)] = place.billed("looped").items()
    assert booked(result) == {model: (used[0] - 204, used[1] - 20, used[2] - 30, 0)}


def test_plan_turn_gives_a_plan_and_changes_nothing(place: Place) -> None:
    result = place.result("planned")
    assert result.plan is not None, result.error
    assert [task.title for task in result.plan.tasks] == ["first"]
    assert not (place.workspace("h1") / "changed").exists()
    place.assert_booked_as_billed(result, "planned")


@pytest.mark.parametrize("host", ["local", "h1"])
def test_cancelled_turn_leaves_nothing_behind_and_is_booked_from_its_session_files(
    place: Place, host: str
) -> None:
    """Its tools have sessions of their own and outlive the CLI, and one of them takes no signal but KILL."""
    turn_id, spool = place.turns[f"cancelled-{host}"], place.spool(f"cancelled-{host}", host)
    until(lambda: lines_of(place.workspace(host) / "up"), "the tool's processes")
    assert len(of_turn(spool)) > 2
    assert place.fleet.client.cancel(turn_id)
    result = place.fleet.result(turn_id)
    assert result.status is Status.CANCELLED
    assert (result.usage_source, result.usage_complete) == ("session_files", True)
    place.assert_booked_as_billed(result, f"cancelled-{host}")
    until(lambda: not of_turn(spool), f"the end of {describe(of_turn(spool))}")


def test_worker_that_takes_over_reads_the_same_turn_to_its_end(place: Place) -> None:
    place.api.gate("taken-over").release()
    result = place.result("taken-over")
    assert (result.status, result.text, result.attempts) == (Status.COMPLETED, "all of it", 1), result.error
    place.assert_booked_as_billed(result, "taken-over")
    assert len(place.api.bill("taken-over").requests) == 1
    place.fleet.assert_nothing_left()
    assert_nothing_left(place.login)
