"""The agent `scripted`: recordings of Claude Code, whose bills are known."""

from __future__ import annotations

import json
from typing import Any

from tests.integration.contract.scenes import GARBAGE, Bill, Scene, Turn
from tests.support.places import RECORDINGS

_PLAYS = {Scene.FAILURE: "e_api_400", Scene.HUGE: "q2_big_read"}
_PAUSES_MS = {Scene.CANCEL: 300_000, Scene.STALL: 300_000, Scene.KILL: 30_000}


class Replay:
    """An actor."""

    agent = "scripted"
    program = None
    environment: dict[str, str] = {}  # noqa: RUF012 - nobody changes it
    failures = frozenset({"invalid_request", "turn_failed"})
    exact = frozenset(Scene) - {Scene.CANCEL, Scene.STALL}  # a recording that is cut off has no session files

    def fields(self, turn: Turn) -> dict[str, Any]:
        lines = (RECORDINGS / f"{_play(turn)}.jsonl").read_text().splitlines()
        if turn.scene is Scene.GARBAGE:
            lines = [*GARBAGE.splitlines(), *lines]
        if pause := _PAUSES_MS.get(turn.scene):
            middle = next(n for n, line in enumerate(lines) if '"tool_use"' in line) + 1
            lines.insert(middle, json.dumps({"after_ms": pause}, separators=(",", ":")))
        code = _truth(turn)["exit_code"]
        return {"prompt": "do it", "options": {"lines": lines, "exit_code": code}}

    def billed(self, turn: Turn) -> Bill:
        bill: Bill = {}
        for request in _truth(turn)["requests"]:
            billed = request.get("billed") or {}
            tokens = sum(count for count in billed.values() if isinstance(count, int))
            if tokens:
                bill[billed["model"]] = bill.get(billed["model"], 0) + tokens
        return bill


def _play(turn: Turn) -> str:
    return _PLAYS.get(turn.scene, "a_parallel_tools")


def _truth(turn: Turn) -> dict[str, Any]:
    return json.loads((RECORDINGS / f"{_play(turn)}.truth.json").read_bytes())
