"""An agent that succeeds in a form that nobody knows is run once, and the result says what was not understood."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.support.fleets.fleet import Fleet

PROGRAM = """#!/bin/sh
[ "$1" = --version ] && { echo 9.9.9; exit; }
prompt=$(cat)
for said in "$0".d/*; do
    case $prompt in *"${said##*/}"*) echo run >>"$0.runs/${said##*/}"; cat "$said" ;; esac
done
case $prompt in *crash*) exit 70 ;; esac
"""
USED = {"inputTokens": 100, "outputTokens": 20, "cacheReadInputTokens": 0, "cacheCreationInputTokens": 0}
OWN = {"input_tokens": 100, "output_tokens": 20, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}
ACCOUNT = {"modelUsage": {"claude-sonnet-4-5": USED}, "usage": OWN}
INIT = {"type": "system", "subtype": "init", "session_id": "s", "claude_code_version": "9.9.9", "tools": []}
MESSAGE = {"id": "m", "model": "claude-sonnet-4-5", "content": [{"type": "text", "text": "done"}], "usage": OWN}
SAID = {"type": "assistant", "message": MESSAGE}
DONE = {"type": "result", "subtype": "success", "is_error": False, "result": "done", **ACCOUNT}
THREAD = {"type": "thread.started", "thread_id": "0199aaaa-0000-7000-8000-000000000000"}
WROTE = {"type": "item.completed", "item": {"id": "1", "type": "agent_message", "text": "done"}}
BEGUN = {"type": "init", "session_id": "s", "model": "gemini-2.5-pro"}
PART = {"type": "message", "role": "assistant", "content": "done", "delta": True}
CALL = {"type": "tool_use", "tool_id": "t", "tool_name": "run_shell_command", "parameters": {}}
DID = {"type": "tool_result", "tool_id": "t", "status": "success", "output": ""}
STATS = {"total_tokens": 120, "models": {"gemini-2.5-pro": {"total_tokens": 120, "input_tokens": 100}}}

# what is printed, whether it is a success, what the result says, and the tokens that were told
FORMS: dict[str, tuple[list[object], bool, str, int]] = {
    "claude-code/subtype": ([INIT, SAID, {**DONE, "subtype": "finished"}], False, "the subtype finished", 120),
    "claude-code/shape": ([INIT, SAID, {"type": "result", "outcome": {"ok": True}}], False, "no subtype", 120),
    "claude-code/silent": ([INIT, SAID], False, "exited with status 0 and without a result", 120),
    "claude-code/garbled": ([INIT, SAID, ["result"]], False, 'the last begins: ["result"]', 120),
    "claude-code/account": ([INIT, SAID, {**DONE, "modelUsage": {"new": 5}}], True, "modelUsage of new", 120),
    "claude-code/crash": ([INIT, SAID, DONE], False, "reported success, and then exited with status 70", 120),
    "codex/silent": ([THREAD, WROTE], False, "exited with status 0 and without a result", 0),
    "codex/account": ([THREAD, WROTE, {"type": "turn.completed"}], True, "usage", 0),
    "gemini/status": (
        [BEGUN, PART, {"type": "result", "status": "fine", "stats": STATS}],
        False,
        "status fine",
        120,
    ),
    "gemini/silent": ([BEGUN, PART], False, "exited with status 0 and without a result", 0),
    "gemini/unnamed": (
        [BEGUN, CALL, DID, {"type": "answer", "text": "done"}],
        False,
        "exited with status 0 and without a result",
        0,
    ),
    "gemini/account": ([BEGUN, PART, {"type": "result", "status": "success"}], True, "stats.models", 0),
}
# The Gemini CLI leaves so on SIGINT and SIGTERM, and a version that nobody knows may always.
ENDLESS = {"gemini/in-a-tool": [BEGUN, CALL], "gemini/after-a-tool": [BEGUN, CALL, DID], "gemini/at-once": [BEGUN]}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    root = tmp_path_factory.mktemp("unknown")
    for agent in ("claude-code", "codex", "gemini"):
        program = root / agent
        program.write_text(PROGRAM)
        program.chmod(0o755)
        (root / f"{agent}.d").mkdir()
        (root / f"{agent}.runs").mkdir()
    for form, printed in {**{form: told[0] for form, told in FORMS.items()}, **ENDLESS}.items():
        agent, name = form.split("/")
        (root / f"{agent}.d" / name).write_text("".join(f"{json.dumps(line)}\n" for line in printed))
    agents = {agent: {"command": str(root / agent)} for agent in ("claude-code", "codex", "gemini")}
    environment = {"PATH": os.environ["PATH"], "HOME": str(root), "PYTHONPATH": str(ROOT)}
    with Fleet(root, environment, agents=json.dumps(agents)) as fleet:
        fleet.start_worker()
        yield fleet


@pytest.mark.parametrize("form", FORMS)
def test_success_in_an_unknown_form_costs_one_attempt_and_says_what_was_not_understood(
    fleet: Fleet, form: str
) -> None:
    agent, name = form.split("/")
    _, succeeds, says, tokens = FORMS[form]

    result = fleet.run(fleet.request(f"{name} please", agent=agent))

    runs = Path(fleet.root, f"{agent}.runs", name).read_text().splitlines()
    assert (result.attempts, len(runs)) == (1, 1)
    assert (result.status == "completed") is succeeds, result.error
    said = "; ".join(result.not_understood) if result.error is None else result.error.message
    assert says in said
    counted = result.usage
    assert counted.input_tokens + counted.output_tokens == tokens
    assert not result.usage_complete or name == "crash"


@pytest.mark.parametrize("form", ENDLESS)
def test_agent_that_ends_amid_its_work_is_tried_once_more_and_not_five_times(fleet: Fleet, form: str) -> None:
    agent, name = form.split("/")

    result = fleet.run(fleet.request(f"{name} please", agent=agent))

    runs = Path(fleet.root, f"{agent}.runs", name).read_text().splitlines()
    assert (result.attempts, len(runs)) == (2, 2)
    assert result.error is not None
    assert result.error.kind == "port_exit"
    assert "as it does on SIGINT and SIGTERM" in result.error.message
    assert "not retried: 2 attempts were billed" in result.error.message
