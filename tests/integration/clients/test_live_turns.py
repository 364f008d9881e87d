"""Live turns with the real Claude Code, here and over SSH: gates, questions, tools, lost workers and lost links.

Whatever is lost while a hook is open: the tool has not run, and no agent is left behind. Two turns lose their
worker before all else, and come to their ends last: that takes as long as a claim and a lease.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from adapters.live import Control, ControlRequest, Verdict
from adapters.protocol.request import TurnRequest
from adapters.protocol.result import Status
from adapters.toolkit.tool_functions import ToolContext
from tests.fakes.model_api import Hold, ModelApi, Reply, Script, Text, ToolUse, Usage, replies
from tests.fakes.model_api.cli import claude_binary, claude_environment
from tests.integration.conftest import claude_fleet
from tests.integration.turns.test_bills import SONNET, billed, booked, in_ledger
from tests.support.fleets.fleet import Fleet
from tests.support.ssh.ssh_host import assert_nothing_left, ssh_host, ssh_hosts
from tests.support.ssh.ssh_logins import Login
from tests.support.waiting import lines_of, text_of, until
from workers.errors import ControlRefused, ControlTimeout

LEASE_S = 45  # longer than a dead worker's claim, by what a busy machine needs for the next worker
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
# What the producer answers while the link is down; then it is there again, and so is the worker, or another one.
VERDICTS = {"no": Verdict(False, "not today"), "yes": Verdict(True)}
LOSSES = ("link", "worker")
# Some are asked before the first test, and answered in one of the last.
ASKING = {"permissions": {"ask": True, "ask_timeout_ms": 1_800_000}}
TOUCH, DONE = Usage(100, 20, 30, 4), Reply((Text("done"),), Usage(50, 30, 40, 6))


def _touching(name: str, hold: Hold | None = None, end: Hold | None = None) -> Script:
    """Wants to leave a line in a file named like the script, and is done then."""
    return Script(name, (Reply((replies.bash(f"echo ran >>{name}"),), TOUCH, hold=hold), replace(DONE, hold=end)))


SCRIPTS = (
    _touching("denied", Hold("denied")),
    *(_touching(name) for name in ("overspent-local", "overspent-h1", "answered", "abandoned", "cancelled")),
    *(_touching(f"{name}-{loss}", end=Hold(f"{name}-{loss}")) for loss in LOSSES for name in VERDICTS),
    *(
        Script(
            f"tools-{host}",
            (
                Reply((ToolUse("mcp__runturn__add", {"a": 2, "b": 3}),), Usage(101, 21)),
                Reply((ToolUse("mcp__echo__echo", {"text": "five"}),), Usage(102, 22)),
                Reply((replies.bash('cat "$RUNTURN_SPOOL/files/mcp.json"'),), Usage(104, 24)),
                Reply((ToolUse("StructuredOutput", {"n": 5}),), Usage(103, 23)),
            ),
        )
        for host in ("local", "h1")
    ),
    Script(
        "sent",
        (
            Reply((Text("first"),), Usage(10, 1), hold=Hold("sent", 1)),
            Reply((Text("second"),), Usage(12, 3)),
        ),
    ),
    Script("interrupted", (Reply((Text("long"),), Usage(13, 4), hold=Hold("interrupted", 2)),)),
)
_OWN = {"PATH", "HOME", "CLAUDE_CONFIG_DIR"}  # of the worker's machine: hosts have theirs
_FORWARDED = sorted(claude_environment("", Path("/"), max_retries=1).keys() - _OWN)


@dataclass(frozen=True, slots=True)
class Sum:
    """What `add` returns."""

    total: int
    turn_id: str

    def render(self) -> str:
        """As the model reads it."""
        return f"the sum is {self.total}"


async def add(a: int, b: int, context: ToolContext) -> Sum:
    """Adds."""
    return Sum(a + b, context.turn_id)


@dataclass
class Place:
    """A fleet with a worker, its own machine and one over SSH, and the API that the agents talk to."""

    fleet: Fleet
    login: Login  # h1
    lost: Login  # h2, whose sshd is gone
    api: ModelApi
    orphan: str = ""  # a turn on h1 whose worker was killed over a question
    abandoned: str = ""  # and one on h2, which nobody reaches any more
    decided: dict[str, str] = field(default_factory=dict)  # on h1, answered before that, while the link was down

    def ask(self, script: str, options: dict[str, Any] | None = None, **fields: Any) -> TurnRequest:
        """A request whose API calls go to that script."""
        given = {"model": SONNET, **(options or {})}
        return self.fleet.request(f"do it [script:{script}]", agent="claude-sdk", options=given, **fields)

    def begin(self, script: str, options: dict[str, Any] | None = None, **fields: Any) -> str:
        """A turn that was queued."""
        return self.fleet.client.enqueue(self.ask(script, options, **fields))

    def named(self, turn_id: str, name: str) -> list[dict[str, Any]]:
        """A turn's events of that name."""
        return [event for event in self.fleet.events(turn_id) if event["event"] == name]

    def asks(self, turn_id: str) -> str:
        """The id of its question, once it has one."""
        until(lambda: self.named(turn_id, "permission_requested"), "the agent's question")
        return str(self.named(turn_id, "permission_requested")[0]["request_id"])

    def printed(self, turn_id: str, text: str) -> bool:
        """Whether its agent on the SSH host has printed that."""
        return text in text_of(self.login.spools / f"{turn_id}.1" / "events")

    def asking(self, loss: str) -> dict[str, str]:
        """Turns on h1 that have asked, by what they are going to be answered."""
        turns = {name: self.begin(f"{name}-{loss}", ASKING, host="h1") for name in VERDICTS}
        for turn_id in turns.values():
            self.asks(turn_id)
        return turns

    def decide(self, turns: dict[str, str]) -> None:
        """Answer them; of each answer, half may have arrived when the link went down."""
        for name, turn_id in turns.items():
            answer = self.fleet.client.answer(turn_id, self.asks(turn_id), VERDICTS[name])
            assert answer["allowed"] is VERDICTS[name].allowed
            with (self.login.spools / f"{turn_id}.1" / "prompt").open("ab") as prompt:
                prompt.write(b'{"type": "control_response", "resp')

    def told(self, turn_id: str, text: str) -> int:
        """How many lines with that its agent on h1 was told."""
        lines = lines_of(self.login.spools / f"{turn_id}.1" / "prompt")
        return sum(text in json.dumps(json.loads(line)) for line in lines)

    def runs(self, name: str) -> int:
        """How often the tool has run that leaves lines in that file."""
        return len(lines_of(self.fleet.workspace / name))

    def left(self, name: str) -> bool:
        """Whether a tool has left that file."""
        return (self.fleet.workspace / name).exists()

    def assert_booked(self, turn_id: str, script: str) -> None:
        """What the ledger has of a turn is what the API charged."""
        result = self.fleet.result(turn_id)
        assert booked(result) == in_ledger(self.fleet, turn_id) == billed(self.api, script)
        events = self.fleet.events(turn_id)
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One for all of them."""
    root = tmp_path_factory.mktemp("live")
    with ExitStack() as stack:
        login, lost = (stack.enter_context(ssh_host(name, root)) for name in ("h1", "h2"))
        fleet, api = stack.enter_context(
            claude_fleet(
                root,
                *SCRIPTS,
                environment={"PYTHONPATH": os.pathsep.join(sys.path)},
                ssh_hosts=ssh_hosts(login.setting(env=_FORWARDED), lost.setting(env=_FORWARDED)),
                agents=json.dumps({"claude-sdk": {"command": str(claude_binary())}}),
                tools=json.dumps([f"{__name__}:add"]),
                agent__lease_ms=f"{LEASE_S}000",
            )
        )
        place = Place(fleet, login, lost, api)
        place.orphan = place.begin("answered", {**ASKING, "tools": ["add"]}, host="h1")
        place.abandoned = place.begin("abandoned", ASKING, host="h2")
        place.decided = place.asking("worker")
        place.asks(place.orphan)
        place.asks(place.abandoned)
        lost.sshd.stop()
        login.sshd.stop()
        place.decide(place.decided)
        fleet.workers[-1].kill()
        login.sshd.start()
        fleet.start_worker()
        yield place


@pytest.mark.parametrize("host", ["local", "h1"])
def test_tools_of_both_kinds_and_structured_output(place: Place, host: str) -> None:
    variables = {"ECHO_PREFIX": "again:", "ECHO_TOKEN": "of-the-server", "PYTHONPATH": os.pathsep.join(sys.path)}
    server = {"command": sys.executable, "args": ["-m", "tests.support.fleets.mcp_echo"], "env": variables}
    options = {"mcp_servers": {"echo": server}, "tools": ["add"]}
    turn_id = place.begin(f"tools-{host}", options, host=host, output_schema=SCHEMA)
    result = place.fleet.result(turn_id)
    assert (result.status, result.structured_output) == (Status.COMPLETED, {"n": 5}), result.error
    invoked = {event["tool"]: json.dumps(event["result"]) for event in place.named(turn_id, "tool_invoked")}
    assert "the sum is 5" in invoked["mcp__runturn__add"]
    assert "again: five" in invoked["mcp__echo__echo"]
    assert "[redacted:ECHO_TOKEN]" in invoked["Bash"]
    assert "of-the-server" not in json.dumps(place.fleet.events(turn_id))
    assert [event["status"] for event in place.named(turn_id, "agent_status")] == ["provisioning", "ready"]
    place.assert_booked(turn_id, f"tools-{host}")


def test_agent_that_cannot_be_provisioned_says_so(place: Place) -> None:
    turn_id = place.begin("denied", host="local", workspace="/nowhere/at/all")
    result = place.fleet.result(turn_id)
    assert result.error is not None
    told = [(event["status"], event["detail"]) for event in place.named(turn_id, "agent_status")]
    assert told == [("provisioning", ""), ("error", result.error.message)]
    assert result.error.kind == "invalid_workspace_cwd"
    events = place.fleet.events(turn_id)
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))


@pytest.mark.parametrize("host", ["local", "h1"])
def test_budget_that_is_used_up_denies_the_next_tool(place: Place, host: str) -> None:
    name = f"overspent-{host}"
    turn_id = place.begin(name, host=host, max_total_tokens=100)
    result = place.fleet.result(turn_id)
    assert result.error is not None
    assert result.error.kind == "budget_exceeded"
    assert not place.left(name)
    (finished,) = place.named(turn_id, "tool_finished")
    assert "Token budget exhausted" in finished["error"]
    place.assert_booked(turn_id, name)


def test_hook_that_nobody_hears_stays_closed_until_somebody_denies_it(place: Place) -> None:
    turn_id = place.begin("denied", {"permissions": {"deny": ["Bash(echo:*)"]}}, host="h1")
    place.api.gate("denied").wait_until_reached()
    place.login.sshd.stop()
    place.api.gate("denied").release()
    until(lambda: place.printed(turn_id, '"PreToolUse"'), "the hook")
    place.login.sshd.start()
    result = place.fleet.result(turn_id)
    assert (result.status, result.attempts) == (Status.COMPLETED, 1), result.error
    (finished,) = place.named(turn_id, "tool_finished")
    assert "One of this turn's rules denies Bash" in finished["error"]
    assert not place.left("denied")
    place.assert_booked(turn_id, "denied")


def test_answer_given_while_the_link_is_down_stands_and_arrives_once(place: Place) -> None:
    turns = place.asking("link")
    place.login.sshd.stop()
    place.decide(turns)
    place.login.sshd.start()
    _assert_answered_once(place, turns, "link")


def _assert_answered_once(place: Place, turns: dict[str, str], loss: str) -> None:
    for name, turn_id in turns.items():
        script = f"{name}-{loss}"
        place.api.gate(script).wait_until_reached(60.0)  # the tool has run, or was denied
        assert place.told(turn_id, '"behavior":') == 1
        place.api.gate(script).release()
        result = place.fleet.result(turn_id)
        assert (result.status, result.text, result.attempts) == (Status.COMPLETED, "done", 1), result.error
        assert place.runs(script) == (name == "yes")
        assert (
            len(place.named(turn_id, "permission_requested"))
            == len(place.named(turn_id, "permission_answered"))
            == 1
        )
        place.assert_booked(turn_id, script)


def test_message_that_was_sent_is_answered_before_the_end(place: Place) -> None:
    turn_id = place.begin("sent", host="local")
    place.api.gate("sent").wait_until_reached()
    assert place.fleet.client.control(turn_id, ControlRequest(Control.SEND, "and now the second"))["message_id"]
    usage = place.fleet.client.control(turn_id, ControlRequest(Control.CONTEXT_USAGE))
    assert usage["maxTokens"] > 0
    place.api.gate("sent").release()
    result = place.fleet.result(turn_id)
    assert (result.status, result.text) == (Status.COMPLETED, "second")
    place.assert_booked(turn_id, "sent")


def test_interrupted_turn_ends_with_what_it_has(place: Place) -> None:
    turn_id = place.begin("interrupted", host="h1")
    place.api.gate("interrupted").wait_until_reached()
    place.fleet.client.control(turn_id, ControlRequest(Control.INTERRUPT))
    result = place.fleet.result(turn_id)
    assert result.error is not None
    assert (result.error.kind, result.error.message) == ("turn_cancelled", "the agent was interrupted")


def test_cancelled_while_it_asks(place: Place) -> None:
    turn_id = place.begin("cancelled", ASKING, host="local")
    place.asks(turn_id)
    place.fleet.client.cancel(turn_id)
    result = place.fleet.result(turn_id)
    assert (result.status, result.exit_code) == (Status.CANCELLED, 1), "it was interrupted, and ended by itself"
    assert not place.left("cancelled")


def test_answer_outlives_the_worker_that_was_killed_before_it_could_pass_it_on(place: Place) -> None:
    _assert_answered_once(place, place.decided, "worker")


def test_question_outlives_the_worker_that_was_killed_over_it(place: Place) -> None:
    turn_id = place.orphan
    until(lambda: _answered(place, turn_id), "a worker that takes the answer")
    result = place.fleet.result(turn_id)
    assert (result.status, result.text, result.attempts) == (Status.COMPLETED, "done", 1), result.error
    (finished,) = place.named(turn_id, "tool_finished")
    assert "not today" in finished["error"]
    assert not place.left("answered")
    place.assert_booked(turn_id, "answered")


def _answered(place: Place, turn_id: str) -> bool:
    try:
        place.fleet.client.answer(turn_id, place.asks(turn_id), Verdict(False, "not today"), timeout_s=3.0)
    except (ControlRefused, ControlTimeout):
        return False
    return True


def test_hook_that_nobody_hears_ever_again_ends_with_the_lease(place: Place) -> None:
    until(lambda: not place.lost.left(), "the end of the agent and all around it")
    assert (place.lost.spools / f"{place.abandoned}.1" / "reason").read_text().split() == ["lease"]
    assert not place.left("abandoned")


def test_nothing_of_all_this_is_left(place: Place) -> None:
    place.fleet.assert_nothing_left()
    assert_nothing_left(place.login)
