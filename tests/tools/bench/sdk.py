"""Live turns compared with the bare Claude Agent SDK: same Claude Code, hooks and scripted API, alternating.

A turn here passes through the queue, the ledger, a supervisor and a spool, and survives its worker; `query` starts
a subprocess and reads its pipe. The API takes half a second per answer, like a fast model. The agent times the
round trip of a hook, from its request to the answer.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, HookMatcher, ResultMessage, query

from adapters.claude_sdk.adapter import ClaudeSdk
from adapters.claude_sdk.gates import HOOKS
from adapters.command import Command
from adapters.contract import AgentConfig, Session
from adapters.protocol.request import TurnRequest
from adapters.protocol.result import Status
from remote.follower import Follower
from remote.host import Host
from remote.local import LocalHost
from remote.spool import Spool
from remote.ssh.connector import Connector
from remote.ssh.host import SshHost
from remote.ssh.host_keys import HostKeys
from remote.ssh.target import Target
from tests.fakes.model_api import Reply, Script, Text, Usage, replies
from tests.fakes.model_api.cli import claude_binary, claude_environment
from tests.integration.conftest import claude_fleet
from tests.support.fleets.fleet import Fleet
from tests.support.ssh.sshd import Sshd
from tests.tools.bench import hooked
from tests.tools.bench.rows import Row, Rows, at_most, informs
from workers.live.conversation import LiveTurn, Office

_WARM_UP, _ROUNDS, _TOOLS = 1, 7, 4
_PACE_S = 0.08  # between two of the six or so events of an answer
_MODEL = "claude-sonnet-4-5"
_SCRIPT = Script(
    "bench",
    (
        *(Reply((replies.bash("true"),), Usage(10 + n, 2), delay_s=_PACE_S) for n in range(_TOOLS)),
        Reply((Text("done"),), Usage(20, 3), delay_s=_PACE_S),
    ),
    per_session=True,
)


def sdk_turn() -> Rows:
    """Measure the median time of a turn with four tools, from request to result."""
    binary = str(claude_binary())
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        own = json.dumps({"claude-sdk": {"command": binary}})
        with claude_fleet(root, _SCRIPT, agents=own) as (fleet, api):
            options = _options(binary, fleet.workspace, claude_environment(api.base_url, root / "home"))
            both: list[tuple[float, float]] = []
            for _ in range(_WARM_UP + _ROUNDS):
                both.append((asyncio.run(_bare(options)), _ours(fleet)))
    bare, ours = (statistics.median(column) * 1000 for column in zip(*both[_WARM_UP:], strict=True))
    return {
        "bare_sdk_turn": informs(bare, "ms"),
        "sdk_turn": informs(ours, "ms"),
        "sdk_turn_overhead": informs(ours - bare, "ms"),
        "sdk_turn_vs_bare_sdk": at_most(ours / bare, 1.05, "x"),
    }


def hook_round_trip() -> Rows:
    """Measure the median over two hundred hooks: the bare SDK, ours locally, and ours over SSH on loopback."""
    with tempfile.TemporaryDirectory() as folder, Sshd() as sshd:
        root = Path(folder)
        program = root / "hooked"
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{hooked.__file__}" "$@"\n')
        program.chmod(0o755)
        return asyncio.run(_round_trips(root, str(program), sshd))


async def _round_trips(root: Path, program: str, sshd: Sshd) -> Rows:
    local = LocalHost({"PATH": "/usr/bin:/bin", "HOME": str(root)})
    target = Target("bench", sshd.host, port=sshd.port, identity=sshd.client_key)
    far = SshHost(target, Connector([target], HostKeys(root / "known_hosts")))
    try:
        rows = {
            "hook_round_trip_bare_sdk": _median(await _asked_by_bare(root, program)),
            "hook_round_trip_local": _median(await _asked_by_ours(local, root, program, "local")),
            "hook_round_trip_ssh": _median(await _asked_by_ours(far, root, program, "ssh")),
        }
    finally:
        await far.close()
    return rows


def _median(seconds: list[float]) -> Row:
    return informs(statistics.median(seconds) * 1000, "ms")


# -- the bare SDK


def _options(binary: str, workspace: Path, environment: Mapping[str, str]) -> ClaudeAgentOptions:
    async def hook(*_: object) -> dict[str, Any]:
        return {}

    return ClaudeAgentOptions(
        cli_path=binary,
        cwd=workspace,
        env=dict(environment),
        model=_MODEL,
        permission_mode="bypassPermissions",
        system_prompt={"type": "preset", "preset": "claude_code"},
        hooks={event: [HookMatcher(hooks=[hook])] for event, _ in HOOKS},  # type: ignore[misc, list-item]
    )


async def _bare(options: ClaudeAgentOptions) -> float:
    began = time.perf_counter()
    result = None
    async for message in query(prompt=_prompt(), options=options):
        result = message if isinstance(message, ResultMessage) else result
    assert result is not None and not result.is_error
    return time.perf_counter() - began


async def _prompt() -> AsyncIterator[dict[str, Any]]:
    yield {"type": "user", "message": {"role": "user", "content": "do it"}, "parent_tool_use_id": None}


async def _asked_by_bare(root: Path, program: str) -> list[float]:
    options = _options(program, root, {})
    async for message in query(prompt=_prompt(), options=options):
        if isinstance(message, ResultMessage):
            return list(json.loads(message.result or ""))
    raise AssertionError("no result")


# -- ours


def _ours(fleet: Fleet) -> float:
    began = time.perf_counter()
    result = fleet.run(fleet.request(agent="claude-sdk", options={"model": _MODEL}))
    assert result.status is Status.COMPLETED, result.error
    return time.perf_counter() - began


async def _asked_by_ours(host: Host, root: Path, program: str, name: str) -> list[float]:
    adapter = ClaudeSdk(AgentConfig(program))
    request = TurnRequest.parse({"prompt": "do it", "workspace": str(root), "agent": "claude-sdk"})
    command: Command = adapter.build(request, Session("s", resume=False))
    failed: list[Exception] = []

    async def said() -> list[bytes]:
        return command.stdin.splitlines()

    async def nobody(*_: object) -> None:
        return None

    office = Office(lambda: None, lambda: None, nobody, lambda _: None, failed.append, said)
    live = LiveTurn(adapter, request, office)
    printed: list[bytes] = []
    async with Follower(host, Spool(str(root / name), "turn", "seal"), command) as turn:
        live.begin(turn)
        async for batch in turn:
            printed += batch.lines
            live.heard(batch.lines)
        await live.close(ended=True)
    assert not failed, failed
    (result,) = [line for line in printed if b'"result"' in line]
    return list(json.loads(json.loads(result)["result"]))
