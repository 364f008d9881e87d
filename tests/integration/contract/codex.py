"""The real Codex, as the agent `codex`, on a scripted Responses API."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.fakes.model_api import Hold, HttpError, Reply, Script, Text, Usage
from tests.fakes.openai_api import OpenAiApi, codex_environment, shell
from tests.integration.contract.scenes import ANSWER, HUGE_TEXT, TOOLS, Bill, Scene, Turn
from tests.support.npm import npm_agent

_WAITS = {Scene.CANCEL: "sleep 300", Scene.KILL: "until [ -e go-on ]; do sleep 0.1; done"}
_LAST = Reply((Text(ANSWER),), Usage(51, 31, 4501, 261))


class Codex:
    """An actor."""

    agent = "codex"
    program: tuple[str, str] | None
    failures = frozenset({"invalid_request", "turn_failed"})
    exact = frozenset(Scene) - {Scene.STALL}  # of an answer that never ends, some is billed that nobody sees

    def __init__(self, api: OpenAiApi, home: Path) -> None:
        self.program = ("codex", str(npm_agent("codex")))
        self._api = api
        self.environment = {**codex_environment(api.base_url, home), "CODEX_HOME": str(home / ".codex")}

    def fields(self, turn: Turn) -> dict[str, Any]:
        return {"prompt": f"do it [script:{turn.script}]", "options": {"sandbox": "danger-full-access"}}

    def billed(self, turn: Turn) -> Bill:
        by_model = self._api.bill(turn.script).by_model
        return {
            model: used.input + used.output + used.cache_read + used.cache_creation
            for model, used in by_model.items()
        }


def script(turn: Turn) -> Script:
    """What the model says in a turn."""
    if turn.scene is Scene.FAILURE:
        return Script(turn.script, (HttpError(400, "invalid_request_error", "no"),) * 3)
    if turn.scene is Scene.STALL:
        return Script(turn.script, (Reply((Text("never"),), Usage(71, 9), hold=Hold(turn.script, 1)),))
    if turn.scene is Scene.HUGE:
        return Script(turn.script, (Reply((Text(HUGE_TEXT),), Usage(12, 22, 33, 44)),))
    tool = TOOLS.get(turn.scene)
    first = (Reply((shell(tool),), Usage(1001, 201, 3001, 501)),) if tool else ()
    # Codex waits for a tool half a minute at most, and then asks the model what to do about it.
    wait = _WAITS.get(turn.scene)
    waiting = (Reply((shell(wait),), Usage(12, 3)),) * 10 if wait else ()
    return Script(turn.script, (*first, *waiting, _LAST))
