"""`runturn` with one more agent, `talkative`, which replays a recording and can be talked to meanwhile.

It notes what is asked of it in a file of its workspace, so that a test can count. Messages that it is sent may
tell it to hang, or to fail. A prompt that begins with `ask` has it ask whether it may use a tool, once.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from adapters.command import Command
from adapters.contract import Capabilities, Session
from adapters.errors import AgentFailed, InvalidRequest
from adapters.live import Control, ControlRequest, Conversation, Desk, Permission, Wire
from adapters.protocol.request import TurnRequest
from adapters.registry import Registry
from adapters.replay_agent import ReplayAgent
from ops.settings import Settings
from tests.support.waiting import lines_of
from workers.__main__ import main
from workers.agents import registry
from workers.cli import context, options
from workers.worker import bootstrap

PERMISSION = Permission("Bash", "toolu_1", {"command": "rm -rf /", "env": {"KEY": "ghp_0123456789abcdefghij"}})
ASK_S = 60.0
_NOT_ASKED = 1.0  # seconds that it waits for an answer when the prompt says `ask soon`


class Talkative(ReplayAgent):
    """See `adapters.live.LiveAdapter`."""

    name = "talkative"
    capabilities = Capabilities(
        resume=True, structured_output=True, cost_cap=False, live_output_tokens=False, live=True
    )

    def build(self, request: TurnRequest, session: Session) -> Command:
        """See `Adapter.build`. Its recording may be a pipe, which awk would not read line by line."""
        command = super().build(request, session)
        copy = 'while IFS= read -r line; do printf "%s\\n" "$line"; done <"$0"'
        return replace(command, argv=("sh", "-c", copy, str(request.options["recording"])))

    def converse(self, request: TurnRequest, wire: Wire, desk: Desk) -> Conversation:
        """The talk of one attempt."""
        return Chat(request, wire, desk)


class Chat:
    """See `adapters.live.Conversation`."""

    def __init__(self, request: TurnRequest, wire: Wire, desk: Desk) -> None:
        self._request = request
        self._wire = wire
        self._desk = desk
        self._workspace = Path(request.workspace)

    async def run(self) -> None:
        """Ask, if it is to, and listen to the agent's end."""
        asking = asyncio.create_task(self._ask())
        async for _ in self._wire.lines():
            pass
        asking.cancel()

    async def _ask(self) -> None:
        if self._request.prompt.startswith("ask"):
            timeout_s = _NOT_ASKED if "soon" in self._request.prompt else ASK_S
            verdict = await self._desk.ask(PERMISSION, timeout_s)
            self._note("verdicts", None if verdict is None else [verdict.allowed, verdict.reason])

    async def control(self, request: ControlRequest) -> Mapping[str, JsonValue]:
        """Note it down."""
        self._note("controls", [request.control, request.value])
        match request.control, request.value:
            case Control.SEND, str(text) if "hang" in text:
                await asyncio.Event().wait()
            case Control.SEND, str(text) if "fail" in text:
                raise AgentFailed("the agent does not want to")
            case Control.SET_PERMISSION_MODE, mode if mode not in ("default", "plan"):
                raise InvalidRequest("has to be default or plan", field="value")
            case Control.SERVER_INFO, _:
                return {"commands": ["compact"]}
        return {}

    def _note(self, name: str, what: object) -> None:
        with (self._workspace / f"{self._request.turn_id}.{name}").open("a") as file:
            file.write(json.dumps(what) + "\n")


def noted(workspace: Path, turn_id: str, name: str) -> list[Any]:
    """What it has noted of a turn."""
    return [json.loads(line) for line in lines_of(workspace / f"{turn_id}.{name}")]


def with_talkative(settings: Settings) -> Registry:
    """All agents, and this one."""
    known = agents_of(settings)
    return Registry([*known, Talkative(known.get("claude-code"))])


agents_of = registry.build_registry


if __name__ == "__main__":
    for module in (bootstrap, context, options):
        module.build_registry = with_talkative  # type: ignore[attr-defined]
    main()
