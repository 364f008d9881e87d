"""What docs/producers.md says of turns that run is done here, with the real Claude Code."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.docs.pages import ROOT, page
from tests.fakes.model_api import Hold, ModelApi, Reply, Script, Text, Usage, replies
from tests.fakes.model_api.cli import claude_binary
from tests.integration.cli.conftest import Cli, cli
from tests.integration.conftest import claude_fleet
from tests.support.fleets.fleet import Fleet
from tests.support.waiting import until

__all__ = ["cli"]  # a fixture

DOCUMENT = page("docs/producers.md")
ASKING = {"permissions": {"ask": True}}
TOOL = Reply((replies.bash("rm -r build"),), Usage(100, 20))
ANSWER = Reply((Text("The directory build."),), Usage(50, 10))
SCRIPTS = (
    Script("program", (TOOL, *(ANSWER,) * 4), keyword="Tidy up"),
    Script("commands", (TOOL, Reply((Text("Well"),), Usage(50, 10), hold=Hold("commands", 1))), keyword="Wait"),
)


def block(test: str) -> str:
    """The text of the block that this test runs."""
    mark = f"tests/docs/test_control.py::{test}"
    (text,) = (block.text for block in DOCUMENT.blocks if mark in block.tested_by)
    return text


@pytest.fixture(scope="module")
def claude(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Fleet, ModelApi]]:
    """A fleet, and the API that its agents talk to."""
    agents = json.dumps({"claude-sdk": {"command": str(claude_binary())}})
    with claude_fleet(tmp_path_factory.mktemp("control"), *SCRIPTS, agents=agents) as place:
        yield place


def test_commands_reach_the_agent(
    claude: tuple[Fleet, ModelApi], cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet, api = claude
    for name, value in fleet.environment.items():
        monkeypatch.setenv(name, value)
    turn_id = fleet.client.enqueue(fleet.request("Wait", agent="claude-sdk", options=ASKING))
    (asked,) = until(lambda: _named(fleet, turn_id, "permission_requested"), "the question")
    names = {"ID": turn_id, "QUESTION": asked["request_id"]}
    for line in block("test_commands_reach_the_agent").splitlines():
        program, *words = shlex.split(line)
        if words[0] == "interrupt":
            api.gate("commands").wait_until_reached()
        said = cli(*(names.get(word, word) for word in words))
        assert (program, said.status, said.err) == ("runturn", 0, ""), line
    result = fleet.result(turn_id)
    assert result.error is not None
    assert result.error.kind == "turn_cancelled"
    done_with = [event["control"] for event in _named(fleet, turn_id, "control_answered") if event["ok"]]
    assert done_with == ["send", "set_permission_mode", "context_usage", "interrupt"]
    (answered,) = _named(fleet, turn_id, "permission_answered")
    assert (answered["allowed"], answered["reason"]) == (False, "not on a Friday")
    assert "Leave the tests alone" not in str(fleet.events(turn_id))


def test_program_answers_the_agent(claude: tuple[Fleet, ModelApi]) -> None:
    fleet, _ = claude
    environment = {
        "PATH": os.environ["PATH"],
        "RUNTURN_BROKER_URL": fleet.broker.url,
        "RUNTURN_LEDGER_URL": fleet.state.ledger_url,
    }
    program = block("test_program_answers_the_agent").replace("/srv/checkout", str(fleet.workspace))
    said = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (said.returncode, said.stdout, said.stderr) == (0, "The directory build.\n", "")


def _named(fleet: Fleet, turn_id: str, name: str) -> list[dict[str, str]]:
    return [event for event in fleet.events(turn_id) if event["event"] == name]
