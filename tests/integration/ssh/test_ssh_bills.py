"""The real Claude Code over SSH, ended in the middle of a tool: what is booked is what was billed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from adapters.protocol.request import TurnRequest
from adapters.protocol.result import Status
from tests.fakes.model_api import ModelApi, Reply, Script, Text, Usage, replies
from tests.fakes.model_api.cli import claude_binary, claude_environment
from tests.integration.turns.test_bills import SONNET, billed, booked, in_ledger
from tests.support.fleets.fleet import Fleet
from tests.support.needs import need
from tests.support.processes import signed
from tests.support.ssh.ssh_logins import STUBBORN_TOOL, Login, logins
from tests.support.ssh.sshd import Sshd
from tests.support.waiting import until

_TOOL = replies.bash(f"{STUBBORN_TOOL.strip()} echo up; sleep 300")
SCRIPTS = (
    # On SIGINT, it prints its result.
    Script("polite", (Reply((_TOOL,), Usage(100, 20, 30, 4)), Reply((Text("went on"),), Usage(400, 60, 70, 8)))),
    # When only SIGKILL ends it, the bill stands in its session files.
    Script("hung", (Reply((_TOOL,), Usage(101, 21, 31, 5)), Reply((Text("went on"),), Usage(402, 62, 72, 9)))),
    Script("cancelled", (Reply((_TOOL,), Usage(103, 23, 33, 7)),)),
)
pytestmark = pytest.mark.timeout(300)

SOURCES = {"polite": "result", "hung": "result"}  # the host continues a stopped one, so that it ends in order


@contextmanager
def claude_host(root: Path, **settings: str) -> Iterator[tuple[Fleet, Login, ModelApi]]:
    """A fleet whose one host has the real Claude Code, with the session files in the login's home."""
    need("sshd")
    binary = claude_binary()
    assert binary is not None, "the Claude Code CLI is missing; it comes with claude-agent-sdk"
    with Sshd() as sshd, logins(sshd, root) as hosts, ModelApi(*SCRIPTS) as api:
        variables = claude_environment(api.base_url, root, max_retries=1)
        forwarded = sorted(set(variables) - {"PATH", "HOME", "CLAUDE_CONFIG_DIR"})
        host = hosts[0].setting(agents={"claude-code": str(binary)}, env=forwarded)
        with Fleet(root, variables, ssh_hosts=json.dumps([host]), **settings) as fleet:
            fleet.start_worker()
            yield fleet, hosts[0], api


def test_claude_code_ended_by_its_lease_is_booked_exactly_and_resumed_on_its_host(tmp_path: Path) -> None:
    settings = {"agent__lease_ms": "10000", "agent__stop_grace_ms": "1000"}
    with claude_host(tmp_path, **settings) as (fleet, login, api):
        turns = {name: fleet.client.enqueue(_asked(fleet, login, name)) for name in SOURCES}
        until(lambda: _tools(login) == len(turns), "the tools' processes")
        witnesses = [login.witness(f"{turn_id}.1") for turn_id in turns.values()]
        until(lambda: _recorded(login, output_tokens=21), "the record that it writes beside its work")
        _agent(login, turns["hung"]).suspend()
        login.sshd.stop()
        login.gone_at()
        assert [witness.words("reason") for witness in witnesses] == [["lease"]] * len(turns)
        login.sshd.start()
        for name, turn_id in turns.items():
            _assert_booked_and_resumed(fleet, login, api, name, turn_id)
        login.gone_at()


def _asked(fleet: Fleet, login: Login, script: str) -> TurnRequest:
    return login.request(fleet, f"do it [script:{script}]", options={"model": SONNET})


def _tools(login: Login) -> int:
    return sum(line.endswith("stubborn ") for line in login.left().values())


def _recorded(login: Login, output_tokens: int) -> bool:
    """Return whether a message with that many tokens stands in a session file."""
    files = login.sshd.home.rglob("*.jsonl")
    return any(f'"output_tokens":{output_tokens}' in file.read_text() for file in files)


def _agent(login: Login, turn_id: str) -> psutil.Process:
    return psutil.Process(signed(login.spools / f"{turn_id}.1", "agent"))


def _assert_booked_and_resumed(fleet: Fleet, login: Login, api: ModelApi, name: str, turn_id: str) -> None:
    result = fleet.result(turn_id)
    assert (result.status, result.text, result.attempts) == (Status.COMPLETED, "went on", 2), result.error
    ended = [event["error_kind"] for event in fleet.events(turn_id) if event["event"] == "attempt_ended"]
    assert ended == ["host_lost", None]
    assert result.host == login.name
    sessions = [event["session_id"] for event in fleet.events(turn_id) if event["event"] == "session_started"]
    assert sessions == [result.session_id] * 2
    assert fleet.ledger.accounting.usage_of(turn_id)[1].source == SOURCES[name]
    assert result.usage_complete
    assert booked(result) == in_ledger(fleet, turn_id) == billed(api, name)
    assert sum(used.input for used in api.bill(name).by_model.values()) in (500, 503)


def test_claude_code_is_cancelled_and_billed(tmp_path: Path) -> None:
    """With the pauses between signals that are usual."""
    with claude_host(tmp_path) as (fleet, login, api):
        turn_id = fleet.client.enqueue(_asked(fleet, login, "cancelled"))
        until(lambda: _tools(login) == 1, "the tool's processes")
        witness = login.witness(f"{turn_id}.1")
        login.come_first()
        assert fleet.client.cancel(turn_id)
        took_s = login.gone_at() - witness.at("reason")
        print(f"everything was gone {took_s:.1f} s after the host had heard of the cancel")
        result = fleet.result(turn_id)
        assert result.status is Status.CANCELLED
        assert booked(result) == in_ledger(fleet, turn_id) == billed(api, "cancelled")
        assert billed(api, "cancelled") == {SONNET: (103, 23, 33, 7)}
