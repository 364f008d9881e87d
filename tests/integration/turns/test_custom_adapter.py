"""The agent that docs/adapters.md shows, brought by a package of its own to a real worker."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from adapters.protocol.result import Status
from tests.docs.pages import ROOT, Page
from tests.support.fleets.fleet import Fleet

TINKER = r"""#!/bin/sh
[ "$1" = --version ] && { echo 1.1; exit; }
prompt=$(cat)
plan='{\"tasks\":[{\"title\":\"Look\"},{\"title\":\"Do\",\"dependencies\":[\"t1\"]}]}'
case $prompt in
    "be broken") echo "no fuel" >&2; exit 3 ;;
    "be refused") error='"I will not"' ;;
    "be a failure") status=failed output="it is too hard" ;;
    "say it plainly") echo "$TINKER_KEY plain"; exit ;;
    *"Move it in words") output="first this, then that" ;;
    "Plan the following"*) output="\`\`\`json\\n$plan\\n\`\`\`" ;;
    *) output="done $*" ;;
esac
echo "looking around"
metadata='{"executionTime":1234,"tokensUsed":{"input":100,"output":50}}'
printf '{"status":"%s","output":"%s","error":%s,"metadata":%s}\n' \
    "${status:-completed}" "$output" "${error:-null}" "$metadata"
"""
FAULTY = """
from runturn_tinker import Tinker

class Faulty(Tinker):
    name = "faulty"

    def judgement(self, state, end):
        raise KeyError("what it printed is nobody's business")

def create(config):
    return Faulty(config)
"""


def package(root: Path, name: str, entries: Mapping[str, str], **modules: str) -> None:
    """A package as an installer leaves it."""
    info = root / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [f"{agent} = {where}" for agent, where in entries.items()]
    (info / "entry_points.txt").write_text("\n".join(["[runturn.adapters]", *lines, ""]))
    for module, text in modules.items():
        (root / f"{module}.py").write_text(text)


def documented() -> tuple[dict[str, str], str]:
    """The entry points and the module of the page."""
    blocks = list(Page(ROOT / "docs/adapters.md").blocks)
    (module,) = (block.text for block in blocks if block.language == "python")
    (table,) = (tomllib.loads(block.text) for block in blocks if block.language == "toml")
    return table["project"]["entry-points"]["runturn.adapters"], module


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    root = tmp_path_factory.mktemp("custom")
    entries, module = documented()
    package(root / "lib", "runturn-tinker", entries, runturn_tinker=module)
    package(root / "lib", "runturn-faulty", {"faulty": "faulty:create"}, faulty=FAULTY)
    package(root / "lib", "runturn-broken", {"broken": "broken:create"}, broken="import nowhere_to_be_found\n")
    package(root / "lib", "runturn-rival", {"claude-code": "runturn_tinker:create"})
    program = root / "bin" / "tinker"
    program.parent.mkdir()
    program.write_text(TINKER)
    program.chmod(0o755)
    environment = {
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "HOME": str(root),
        "PYTHONPATH": f"{root / 'lib'}:{ROOT}",
        "TINKER_KEY": "sk-tinker-0123456789",
    }
    agents = json.dumps({"faulty": {"command": str(program)}})
    with Fleet(root, environment, agents=agents) as fleet:
        fleet.start_worker()
        yield fleet


def test_turn_of_a_third_partys_agent_is_run_and_billed(fleet: Fleet) -> None:
    result = fleet.run(fleet.request(agent="tinker", options={"careful": True}))
    assert (result.status, result.text) == (Status.COMPLETED, "done run --careful")
    bill = result.usage.by_model["tinker-1"]
    assert (bill.input_tokens, bill.output_tokens, result.usage_source) == (100, 50, "result")
    assert result.cost_usd == pytest.approx(0.00035)
    events = fleet.events(result.turn_id)
    (end,) = (event for event in events if event["event"] == "turn_completed")
    assert (end["report"]["subtype"], end["report"]["duration_ms"]) == ("completed", 1234)
    names = [event["event"] for event in events]
    assert names == ["attempt_started", "text", "token_usage", "turn_completed", "attempt_ended", "turn_settled"]


@pytest.mark.parametrize(
    ("prompt", "status", "says"),
    [
        ("be broken", "failed", "tinker exited with 3: no fuel"),  # D5: the exit code, and what stderr says
        ("be refused", "failed", "I will not"),  # an error in its JSON
        ("be a failure", "failed", "it is too hard"),  # its own word for it, without an error
        ("say it plainly", "completed", "plain"),  # no JSON at all: the text is the answer
    ],
)
def test_end_is_judged_by_the_adapter(fleet: Fleet, prompt: str, status: str, says: str) -> None:
    result = fleet.run(fleet.request(prompt, agent="tinker"))
    assert result.status == status
    assert says in (result.error.message if result.error else result.text)
    assert "sk-tinker" not in result.text


def test_plan_turn_has_its_tasks_in_the_result(fleet: Fleet) -> None:
    said = fleet.command("run", "--plan", "Move it", "--agent", "tinker", "--json", cwd=ROOT)
    assert said.returncode == 0, said.stderr
    result = json.loads(said.stdout)
    assert [(task["id"], task["title"], task["dependencies"]) for task in result["plan"]["tasks"]] == [
        ("t1", "Look", []),
        ("t2", "Do", ["t1"]),
    ]
    assert result["text"].startswith("```json")  # as it was written
    shown = fleet.command("result", result["turn_id"]).stdout.splitlines()
    assert shown[:2] == ["t1: Look (medium)", "t2: Do (medium, after t1)"]


def test_answer_that_is_no_plan_fails_the_plan_turn_and_keeps_what_was_written(fleet: Fleet) -> None:
    result = fleet.run(fleet.request("Move it in words", agent="tinker", plan=True))
    assert result.error is not None
    assert (result.error.kind, result.error.message.partition(":")[0], result.text, result.plan) == (
        "structured_output_missing",
        "Invalid JSON",
        "first this, then that",
        None,
    )
    assert result.usage.output_tokens == 50


def test_prompt_beyond_what_an_agent_takes_is_refused(fleet: Fleet) -> None:
    refused = fleet.run(fleet.request("x" * 200_000, agent="tinker"))
    assert refused.error is not None
    assert refused.error.message.startswith("prompt: agent tinker does not offer a context of 66,667 tokens")


def test_faulty_adapter_fails_its_turn_and_keeps_the_bill(fleet: Fleet) -> None:
    result = fleet.run(fleet.request(agent="faulty"))
    assert result.error is not None
    assert (result.error.kind, result.attempts) == ("turn_failed", 1)
    assert "the adapter of agent faulty is faulty: judgement() raised KeyError" in result.error.message
    assert "nobody's business" not in result.error.message
    assert result.usage.output_tokens == 50


def test_package_that_cannot_be_loaded_is_reported_and_harms_nobody(fleet: Fleet) -> None:
    found: Any = json.loads(fleet.command("agents", "--json", cwd=ROOT).stdout)
    failed = {each["agent"]: each for each in found["failed"]}
    assert failed.keys() == {"broken", "claude-code"}
    assert failed["broken"]["source"] == "runturn-broken 1.0"
    assert "No module named 'nowhere_to_be_found'" in failed["broken"]["reason"]
    assert "another agent has this name" in failed["claude-code"]["reason"]
    (tinker,) = (each for each in found["agents"] if each["agent"] == "tinker")
    assert (tinker["healthy"], tinker["version"], tinker["warning"]) == (True, "1.1", None)
    assert tinker["source"] == "runturn-tinker 1.0"
    assert (tinker["billing"], tinker["credentials"]["forwarded"]) == (["api"], ["TINKER_KEY"])
    checks = json.loads(fleet.command("doctor", "--json", cwd=ROOT).stdout)["checks"]
    (check,) = (check for check in checks if check["name"] == "agents")
    assert not check["ok"]
    assert "agent could not be loaded" in fleet.workers[0].log.read_text()
    refused = fleet.run(fleet.request(agent="broken"))
    assert refused.error is not None
    assert (refused.error.kind, "could not be loaded" in refused.error.message) == ("invalid_request", True)
