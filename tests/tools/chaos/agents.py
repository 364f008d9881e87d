"""The real agents and the scripted APIs that they talk to, with their replies and prices."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from adapters.usage import ModelUsage, Tokens
from tests.fakes.gemini_api import GeminiApi
from tests.fakes.gemini_api.cli import gemini_environment, write_settings
from tests.fakes.model_api import ModelApi, Reply, Script, Text, ToolUse, Usage, replies
from tests.fakes.model_api.bill import Bill
from tests.fakes.model_api.cli import claude_binary, claude_environment
from tests.fakes.model_api.script import Block
from tests.fakes.openai_api import MODEL, OpenAiApi, codex_environment, shell
from tests.fakes.openai_api.cli import configure
from tests.support.npm import npm_agent
from tests.tools.chaos.form import Form
from tests.tools.chaos.player import Players

CLAUDE, SDK, CODEX, GEMINI = "claude-code", "claude-sdk", "codex", "gemini"
IN_TURN = (CLAUDE, CODEX, GEMINI, SDK)  # of sessions of turns
MODELS = {CLAUDE: "claude-sonnet-4-5", SDK: "claude-sonnet-4-5", CODEX: MODEL, GEMINI: "gemini-2.5-pro"}
# Dollars for a million tokens: input, output, read from and written to the cache.
_PRICES = {
    "claude-sonnet-4-5": (3.0, 15.0, 0.3, 3.75),
    MODEL: (2.0, 10.0, 0.1, 2.5),
    "gemini-2.5-pro": (1.25, 10.0, 0.125, 0.0),
}
_SPARE_REPLIES = 4  # for an agent that was ended while an answer was under way
_OWN = {"PATH", "HOME", "CLAUDE_CONFIG_DIR", "LANG"}  # of the worker's machine: hosts have theirs


class Api(Protocol):
    """A scripted model API."""

    def bill(self, script: str) -> Bill:
        """Return what a script has cost."""


@dataclass(frozen=True, slots=True)
class Agents:
    """The real agents: their APIs, programs and environment variables."""

    apis: Mapping[str, Api]  # by agent
    programs: Mapping[str, str]  # by agent
    variables: Mapping[str, str]
    folders: Sequence[str]  # of what these programs consist of, for sandboxes

    @property
    def forwarded(self) -> list[str]:
        """Return the names of the variables that agents on other hosts need."""
        return sorted(self.variables.keys() - _OWN)

    def billed(self, agent: str, script: str) -> ModelUsage:
        """Return the actual cost of a script, without incomplete messages: only the API has a record of those."""
        requests = [request for request in self.apis[agent].bill(script).requests if not request.partial]
        assert {request.model for request in requests} <= {MODELS[agent]}, "a model without a price here"
        used = sum((request.usage for request in requests), Usage())
        counts = (used.input, used.output, used.cache_read, used.cache_creation)
        cost = sum(count * price for count, price in zip(counts, _PRICES[MODELS[agent]], strict=True))
        return ModelUsage(Tokens(*counts), cost / 1e6)


def open_agents(stack: ExitStack, form: Form, home: Path, homes: list[Path], players: Players) -> Agents:
    """Open the APIs; `homes` are those of the hosts. Codex and Gemini are included if the form requests them."""
    binary = claude_binary()
    if binary is None:
        raise RuntimeError("the Claude Code CLI is missing; it comes with claude-agent-sdk")
    claude = str(players.counted(binary))
    api = stack.enter_context(ModelApi(*_claude_scripts(form)))
    apis: dict[str, Api] = {CLAUDE: api, SDK: api}
    programs, variables = {CLAUDE: claude, SDK: claude}, claude_environment(api.base_url, home, max_retries=1)
    if form.others:
        apis[CODEX] = codex = stack.enter_context(OpenAiApi(*_other_scripts(form, CODEX)))
        apis[GEMINI] = gemini = stack.enter_context(GeminiApi(*_other_scripts(form, GEMINI)))
        variables |= codex_environment(codex.base_url, home) | gemini_environment(gemini.base_url, home)
        for each in homes:
            configure(codex.base_url, each)
        for each in (home, *homes):
            write_settings(each)
        programs |= {name: str(players.counted(npm_agent(name))) for name in (CODEX, GEMINI)}
        variables["PATH"] = f"{npm_agent(CODEX).parent}{os.pathsep}{variables['PATH']}"
    folders = [str(npm_agent(name).parent.parent) for name in (CODEX, GEMINI) if form.others]
    return Agents(apis, programs, variables, sorted({str(binary.parent), *folders}))


def settings(agents: Agents) -> dict[str, str]:
    """Return the workers' settings for these agents."""
    own = {name: {"command": program} for name, program in agents.programs.items() if name != CLAUDE}
    return {"RUNTURN_AGENT__COMMAND": agents.programs[CLAUDE], "RUNTURN_AGENTS": json.dumps(own)}


def tool(agent: str, command: str) -> ToolUse:
    """Return a call of an agent's shell tool."""
    match agent:
        case "codex":
            return shell(command)
        case "gemini":
            return ToolUse("run_shell_command", {"command": command, "description": "scripted"})
        case _:
            return replies.bash(command)


def session_agent(number: int) -> str:
    """Return the agent of a session of turns."""
    return IN_TURN[number % len(IN_TURN)]


def _claude_scripts(form: Form) -> Iterator[Script]:
    for n in range(form.real):
        yield _script(f"real-{n}", CLAUDE, n, _pause_s(form, n))
    for n in range(form.others):
        yield _script(f"live-{n}", SDK, n, _pause_s(form, n), spares=4 * _SPARE_REPLIES)
        if session_agent(n) in (CLAUDE, SDK):
            yield _session_script(n)


def _other_scripts(form: Form, agent: str) -> Iterator[Script]:
    for n in range(form.others):
        yield _script(f"{agent}-{n}", agent, n, _pause_s(form, n))
        if session_agent(n) == agent:
            yield _session_script(n)


def _pause_s(form: Form, n: int) -> int:
    return 2 + n % 5 if form.longest_s < 30 else 3 + 5 * (n % 3)


def _script(name: str, agent: str, n: int, pause_s: int, spares: int = _SPARE_REPLIES) -> Script:
    """Return a script with two tool calls. All usages differ, so that no sum is correct by accident."""
    working = [_reply(agent, tool(agent, f"sleep {pause_s}"), 100 * k + n, 10 + 10 * k + n) for k in (1, 2)]
    done = [_reply(agent, Text("done"), 300 + n + k, 40 + n) for k in range(spares)]
    return Script(name, (*working, *done))


def _session_script(n: int) -> Script:
    """Return a script with one step per turn, and enough replies for turns that repeat or skip their step."""
    agent = session_agent(n)
    said: list[Reply] = []
    for k in range(15):
        said.append(_reply(agent, tool(agent, f"echo step >>steps; sleep {1 + n % 4}"), 1000 + 10 * k + n, 20 + k))
        said.append(_reply(agent, Text("a step was taken"), 2000 + 10 * k + n, 30 + k))
    return Script(f"session-{n}", tuple(said))


def _reply(agent: str, block: Block, sent: int, received: int) -> Reply:
    written = 0 if agent == GEMINI else 5 + sent % 7  # it bills no writing to the cache
    return Reply((block,), Usage(sent, received, received + 10, written))
