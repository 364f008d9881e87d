"""The real Claude Code, as the agent `claude-code` and as `claude-sdk`, on a scripted model API."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.fakes.model_api import Hold, ModelApi, Reply, Script, Text, Usage, replies
from tests.fakes.model_api.cli import claude_binary, claude_environment
from tests.integration.contract.scenes import ANSWER, HUGE_TEXT, TOOLS, Bill, Scene, Turn

_MODEL = "claude-sonnet-4-5"
_LAST = Reply((Text(ANSWER),), Usage(50, 30, 4500, 260))


class Claude:
    """An actor."""

    program: tuple[str, str] | None
    failures = frozenset({"invalid_request", "turn_failed"})
    exact = frozenset(Scene) - {Scene.STALL}  # of an answer that never ends, some is billed that nobody sees

    def __init__(self, agent: str, api: ModelApi, home: Path) -> None:
        binary = claude_binary()
        assert binary is not None, "the Claude Code CLI is missing; it comes with claude-agent-sdk"
        self.agent = agent
        self.program = ("claude", str(binary))
        self._api = api
        self.environment = claude_environment(api.base_url, home, max_retries=1)

    def fields(self, turn: Turn) -> dict[str, Any]:
        return {"prompt": f"do it [script:{turn.script}]", "options": {"model": _MODEL}}

    def billed(self, turn: Turn) -> Bill:
        by_model = self._api.bill(turn.script).by_model
        return {
            model: used.input + used.output + used.cache_read + used.cache_creation
            for model, used in by_model.items()
        }


def script(turn: Turn) -> Script:
    """What the model says in a turn."""
    if turn.scene is Scene.FAILURE:
        return Script(turn.script, (replies.invalid_request("no"),) * 3)
    if turn.scene is Scene.STALL:
        return Script(turn.script, (Reply((Text("never"),), Usage(70, 9), hold=Hold(turn.script, 1)),))
    if turn.scene is Scene.HUGE:
        return Script(turn.script, (Reply((Text(HUGE_TEXT),), Usage(11, 22, 33, 44), chunks=4),))
    tool = TOOLS.get(turn.scene)
    first = (Reply((replies.bash(tool),), Usage(1000, 200, 3000, 500)),) if tool else ()
    return Script(turn.script, (*first, _LAST))
