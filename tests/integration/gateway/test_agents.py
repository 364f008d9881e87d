"""Real agents take the gateway for their API: they finish their turn, and each billed token is noted."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest

from adapters.claude_code.wire import AnthropicWire
from adapters.codex.wire import OpenAiWire
from adapters.gemini.wire import GeminiWire
from adapters.prices import NO_PRICES
from adapters.usage import NO_TOKENS, Tokens
from ops.gateway.notes import Ending
from tests.fakes.gemini_api import GeminiApi
from tests.fakes.gemini_api.cli import gemini_environment, write_settings
from tests.fakes.model_api import Bill, ModelApi, Reply, Script, Text, ToolUse, Usage
from tests.fakes.model_api.cli import claude_binary, claude_command, claude_environment
from tests.fakes.openai_api import OpenAiApi, codex_environment, shell
from tests.support.needs import missing
from tests.support.npm import npm_agent

from .notebook import REAL_KEY, TOKEN, Notes, gateway

WIRES = {"anthropic": AnthropicWire(), "openai": OpenAiWire(NO_PRICES), "gemini": GeminiWire(NO_PRICES)}
USED = (Usage(100, 20, 30), Usage(250, 45, 130))


class Api(Protocol):
    """What all scripted APIs have."""

    base_url: str

    def bill(self, script: str) -> Bill: ...


@dataclass(frozen=True)
class Agent:
    """An agent, its API, and a call of its shell."""

    provider: str
    api: Callable[[Script], AbstractContextManager[Api]]
    tool: ToolUse
    start: Callable[[str, Path], tuple[list[str], dict[str, str]]]


def claude(url: str, home: Path) -> tuple[list[str], dict[str, str]]:
    binary = claude_binary() or missing("Claude Code is not installed")
    return claude_command(binary), claude_environment(url, home, key=TOKEN)


def codex(url: str, home: Path) -> tuple[list[str], dict[str, str]]:
    command = [str(npm_agent("codex")), "exec", "--json", "--skip-git-repo-check", "-s", "danger-full-access", "-"]
    return command, {**codex_environment(url, home), "CODEX_API_KEY": TOKEN}


def gemini(url: str, home: Path) -> tuple[list[str], dict[str, str]]:
    write_settings(home)
    command = [str(npm_agent("gemini")), "-o", "stream-json", "--approval-mode", "yolo", "-m", "gemini-2.5-pro"]
    quiet = {"GEMINI_CLI_TRUST_WORKSPACE": "true", "GEMINI_CLI_NO_RELAUNCH": "true"}
    return [*command, "-p", "do it"], {**gemini_environment(url, home), **quiet, "GEMINI_API_KEY": TOKEN}


SHELL = {"command": "echo hello", "description": "says hello"}
AGENTS = {
    "claude-code": Agent("anthropic", ModelApi, ToolUse("Bash", {**SHELL}), claude),
    "codex": Agent("openai", OpenAiApi, shell("echo hello"), codex),
    "gemini": Agent("gemini", GeminiApi, ToolUse("run_shell_command", {**SHELL}), gemini),
}


@contextmanager
def behind(agent: Agent) -> Iterator[tuple[str, Notes, Api]]:
    replies = (Reply((Text("I look"), agent.tool), USED[0]), Reply((Text("done"),), USED[1]))
    with agent.api(Script("turn", replies=replies, key=REAL_KEY)) as api:
        notes = Notes({agent.provider: api.base_url})
        with gateway(WIRES, notes) as url:
            yield f"{url}/{agent.provider}", notes, api


@pytest.mark.parametrize("name", AGENTS)
def test_turn_through_the_gateway_is_noted_to_the_token(name: str, tmp_path: Path) -> None:
    agent, home, workspace = AGENTS[name], tmp_path / "home", tmp_path / "workspace"
    home.mkdir()
    workspace.mkdir()
    with behind(agent) as (url, notes, api):
        command, environment = agent.start(url, home)
        done = subprocess.run(
            command, check=False, env=environment, cwd=workspace, input=b"do it", capture_output=True, timeout=240
        )
        notes.wait_until_closed(2)
        bill = api.bill("turn").total
    assert done.returncode == 0, done.stdout + done.stderr
    assert b"done" in done.stdout
    noted = sum((metered.tokens for metered in notes.metered), NO_TOKENS)
    assert noted == Tokens(bill.input, bill.output, bill.cache_read, bill.cache_creation)
    assert all(metered.complete for metered in notes.metered)
    # An agent may leave once it has read the last event.
    assert {closing.ending for closing in notes.closed.values()} <= {Ending.ANSWERED, Ending.DRAINED}
    assert REAL_KEY.encode() not in done.stdout + done.stderr
    for file in (path for path in tmp_path.rglob("*") if path.is_file() and not path.is_symlink()):
        assert REAL_KEY.encode() not in file.read_bytes(), file
