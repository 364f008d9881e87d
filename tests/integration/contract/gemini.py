"""The real Gemini CLI, on a scripted Gemini API."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.fakes.gemini_api import GeminiApi
from tests.fakes.gemini_api.cli import gemini_environment, write_settings
from tests.fakes.model_api import Hold, HttpError, Reply, Script, Text, Thinking, ToolUse, Usage
from tests.integration.contract.scenes import ANSWER, HUGE_TEXT, TOOLS, Bill, Scene, Turn
from tests.support.npm import npm_agent

_MODEL = "gemini-2.5-pro"
_LAST = Reply((Text(ANSWER),), Usage(50, 30, 4500))


class Gemini:
    """An actor."""

    agent = "gemini"
    failures = frozenset({"authentication_failed"})
    exact = frozenset(Scene) - {Scene.STALL}  # of an answer that never ends, some is billed that nobody sees

    def __init__(self, api: GeminiApi, home: Path) -> None:
        self.program: tuple[str, str] | None = ("gemini", str(npm_agent("gemini")))
        self._api = api
        self.environment = {**gemini_environment(api.base_url, home), "GEMINI_CLI_HOME": str(home)}
        write_settings(home)

    def fields(self, turn: Turn) -> dict[str, Any]:
        return {"prompt": f"do it [script:{turn.script}]", "options": {"model": _MODEL}}

    def billed(self, turn: Turn) -> Bill:
        by_model = self._api.bill(turn.script).by_model
        return {model: used.input + used.output + used.cache_read for model, used in by_model.items()}


def script(turn: Turn) -> Script:
    """What the model says in a turn."""
    if turn.scene is Scene.FAILURE:
        return Script(turn.script, (HttpError(400, "INVALID_ARGUMENT", "API key not valid."),))
    if turn.scene is Scene.STALL:
        return Script(turn.script, (Reply((Text("never"),), Usage(70, 9), hold=Hold(turn.script, 1)),))
    if turn.scene is Scene.HUGE:
        return Script(turn.script, (Reply((Text(HUGE_TEXT),), Usage(11, 22, 33)),))
    tool = TOOLS.get(turn.scene)
    call = ToolUse("run_shell_command", {"command": tool or "", "description": "scripted"})
    first = (Reply((Thinking("hm"), call), Usage(1000, 200, 3000)),) if tool else ()
    return Script(turn.script, (*first, _LAST))
