"""The real Claude Code as a subprocess, on a wire of this process: no host, no spool, no worker."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from adapters.claude_sdk.adapter import ClaudeSdk
from adapters.command import FILES
from adapters.contract import Exit, Judgement, Session
from adapters.events import Event
from adapters.live import Control, ControlRequest, Conversation, Permission, Verdict
from adapters.protocol.request import TurnRequest
from adapters.turn_state import TurnState, fold

LINE_LIMIT = 16 * 1024 * 1024


class Desk:
    """A worker's desk, as a test wants it."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.verdict: Verdict | None = None
        self.asked: list[Permission] = []
        self.hold: asyncio.Event | None = None  # questions wait for it
        self.tokens: int | None = None

    def refusal(self) -> str | None:
        """See `adapters.live.Desk`."""
        return self.reason

    def remaining_tokens(self) -> int | None:
        """See `adapters.live.Desk`."""
        return self.tokens

    async def ask(self, permission: Permission, timeout_s: float) -> Verdict | None:
        """See `adapters.live.Desk`."""
        self.asked.append(permission)
        if self.hold is not None:
            await self.hold.wait()
        return self.verdict


class Agent:
    """One agent's process, what it was told, and what it has printed."""

    def __init__(self, process: asyncio.subprocess.Process, adapter: ClaudeSdk) -> None:
        self.process = process
        self.said: list[bytes] = []
        self.printed: list[bytes] = []
        self.state = TurnState()
        self.events: list[Event] = []
        self._parser = adapter.parser()
        self._adapter = adapter
        self._news = asyncio.Condition()
        self._over = False
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(
        cls,
        adapter: ClaudeSdk,
        request: TurnRequest,
        environment: Mapping[str, str],
        spool: Path,
        session: Session,
    ) -> Agent:
        """Start it as a host would."""
        command = adapter.build(request, session)
        spool.mkdir(exist_ok=True)
        for name, content in command.files.items():
            (spool / name).write_bytes(content)
        process = await asyncio.create_subprocess_exec(
            *(argument.replace(FILES, str(spool)) for argument in command.argv),
            cwd=command.cwd,
            env={**environment, **command.env},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LINE_LIMIT,
        )
        agent = cls(process, adapter)
        assert process.stdin is not None
        process.stdin.write(command.stdin)
        agent.said += command.stdin.splitlines()
        return agent

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            await self._got(line.rstrip(b"\n"))
        async with self._news:
            self._over = True
            self._news.notify_all()

    async def _got(self, line: bytes) -> None:
        self.events += fold(self._parser, self.state, [line], 0.0)
        async with self._news:
            self.printed.append(line)
            self._news.notify_all()

    async def printed_from(self, index: int) -> tuple[int, list[bytes], bool]:
        """What is new since then."""
        async with self._news:
            await self._news.wait_for(lambda: len(self.printed) > index or self._over)
            return len(self.printed), self.printed[index:], self._over

    async def has_printed(self, text: str) -> None:
        """Until it has."""
        async with self._news:
            await self._news.wait_for(lambda: any(text.encode() in line for line in self.printed))

    async def judgement(self) -> Judgement:
        """What came of it, once it has ended."""
        code = await self.process.wait()
        await self._reading
        return self._adapter.judgement(self.state, Exit(code))

    async def close(self) -> None:
        """End it, if it has not ended."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()
        await self._reading


class Wire:
    """One worker's wire to it."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.said = tuple(agent.said)

    async def write(self, line: bytes) -> None:
        """See `adapters.live.Wire`."""
        stdin = self._agent.process.stdin
        assert stdin is not None
        self._agent.said.append(line)
        stdin.write(line + b"\n")
        with contextlib.suppress(ConnectionError):
            await stdin.drain()

    async def lines(self) -> AsyncIterator[bytes]:
        """See `adapters.live.Wire`."""
        index, over = 0, False
        while not over:
            index, lines, over = await self._agent.printed_from(index)
            for line in lines:
                yield line

    async def end_input(self) -> None:
        """See `adapters.live.Wire`."""
        stdin = self._agent.process.stdin
        assert stdin is not None
        stdin.close()


class Stage:
    """One turn: an agent, and the conversations that workers lead with it."""

    def __init__(self, root: Path, environment: Mapping[str, str], adapter: ClaudeSdk, prompt: str, **fields: Any):
        self.root = root
        self.workspace = root / "workspace"
        self.workspace.mkdir(exist_ok=True)
        self.desk = Desk()
        self.adapter = adapter
        self._environment = environment
        document = {"prompt": prompt, "workspace": str(self.workspace), "agent": "claude-sdk", **fields}
        self.request = TurnRequest.parse(document)
        self.agent: Agent
        self.conversation: Conversation

    async def __aenter__(self) -> Stage:
        session = Session(os.urandom(16).hex(), resume=False)
        session = Session(_uuid(session.session_id), resume=False)
        self.adapter.check(self.request)
        self.agent = await Agent.start(self.adapter, self.request, self._environment, self.root / "spool", session)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.agent.close()

    def worker(self) -> asyncio.Task[None]:
        """A worker that leads the conversation, or takes it over."""
        self.conversation = self.adapter.converse(self.request, Wire(self.agent), self.desk)
        return asyncio.create_task(self.conversation.run())

    async def finish(self) -> Judgement:
        """Lead it to its end."""
        await self.worker()
        return await self.agent.judgement()

    async def control(self, control: Control, value: str | None = None) -> Mapping[str, Any]:
        """Ask the agent."""
        return await self.conversation.control(ControlRequest(control, value))

    @property
    def heard(self) -> list[dict[str, Any]]:
        """What the agent was told, decoded."""
        return [orjson.loads(line) for line in self.agent.said]

    def named(self, name: str) -> list[Any]:
        """Its events of that name."""
        return [event for event in self.agent.events if event.name == name]


def _uuid(digits: str) -> str:
    return "-".join((digits[:8], digits[8:12], "4" + digits[13:16], "a" + digits[17:20], digits[20:]))
