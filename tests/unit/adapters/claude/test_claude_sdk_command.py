"""The command of a `claude-sdk` turn: the flags that the SDK would build, and what is refused before it starts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest
from claude_agent_sdk import (
    AgentDefinition,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    CLIConnectionError,
    CLIJSONDecodeError,
    CLINotFoundError,
    ProcessError,
    Transport,
)
from claude_agent_sdk._internal.transport.subprocess_cli import SubprocessCLITransport

from adapters.claude_sdk.adapter import ClaudeSdk
from adapters.claude_sdk.conversation import ClaudeSdkConversation, turn_error
from adapters.claude_sdk.options import ClaudeSdkOptions
from adapters.command import FILES
from adapters.contract import AgentConfig, Session
from adapters.errors import AgentFailed, AgentNotFound, InvalidRequest
from adapters.events import AgentStatus
from adapters.protocol.request import TurnRequest
from tests.support.recordings.wires import Desk

NEW = Session("5f6f1c2e-0000-4000-8000-000000000001", resume=False)
OLD = Session(NEW.session_id, resume=True)
TOOLS = AgentConfig(tools=(f"{__name__}:add",))
SERVERS: dict[str, dict[str, Any]] = {
    "files": {"command": "files", "args": ["--all"], "env": {"KEY": "secret"}},
    "far": {"type": "http", "url": "http://localhost/mcp", "headers": {"Authorization": "Bearer secret"}},
    "older": {"type": "sse", "url": "http://localhost/sse"},
}


def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


def request(options: dict[str, Any] | None = None, **fields: Any) -> TurnRequest:
    """A request."""
    document = {"prompt": "do it", "workspace": "/w", "agent": "claude-sdk", "options": options or {}, **fields}
    return TurnRequest.parse(document)


def flags(argv: Sequence[str]) -> set[str]:
    """Flags with their values in one word each, whichever way they were written."""
    words: list[str] = []
    for word in argv[1:]:
        if word.startswith("--") or not words or "=" in words[-1]:
            words.append(word)
        else:
            words[-1] += f"={word}"
    return set(words)


PRESET = {"type": "preset", "preset": "claude_code"}


@pytest.mark.parametrize(
    ("options", "fields", "session", "theirs"),
    [
        (
            {},
            {},
            NEW,
            ClaudeAgentOptions(
                system_prompt=PRESET,
                permission_mode="bypassPermissions",
                session_id=NEW.session_id,
                include_partial_messages=True,
            ),
        ),
        (
            {"sandbox": {"allowed_domains": []}},
            {},
            NEW,
            ClaudeAgentOptions(
                system_prompt=PRESET,
                permission_mode="bypassPermissions",
                session_id=NEW.session_id,
                include_partial_messages=True,
                sandbox={"enabled": True, "network": {"allowedDomains": []}},
            ),
        ),
        (
            {
                "model": "opus",
                "fallback_model": "sonnet",
                "max_turns": 3,
                "effort": "low",
                "allowed_tools": "Read,Bash",
                "disallowed_tools": "WebFetch",
                "system_prompt": "be brief",
                "permissions": {"ask": True},
                "sandbox": {
                    "allowed_domains": ["example.org"],
                    "allow_unix_sockets": ["/run/docker.sock"],
                    "allow_unsandboxed_commands": False,
                    "excluded_commands": ["docker"],
                },
            },
            {"max_cost_usd": 0.5, "max_total_tokens": 1000, "output_schema": {"type": "object"}},
            OLD,
            ClaudeAgentOptions(
                system_prompt={**PRESET, "append": "be brief"},  # type: ignore[typeddict-item]
                model="opus",
                fallback_model="sonnet",
                max_turns=3,
                effort="low",
                allowed_tools=["Read", "Bash"],
                disallowed_tools=["WebFetch"],
                permission_mode="default",
                permission_prompt_tool_name="stdio",
                resume=OLD.session_id,
                max_budget_usd=0.5,
                include_partial_messages=True,
                sandbox={
                    "enabled": True,
                    "network": {"allowedDomains": ["example.org"], "allowUnixSockets": ["/run/docker.sock"]},
                    "allowUnsandboxedCommands": False,
                    "excludedCommands": ["docker"],
                },
                output_format={"type": "json_schema", "schema": {"type": "object"}},
            ),
        ),
    ],
)
def test_flags_are_those_of_the_sdk(
    options: dict[str, Any], fields: dict[str, Any], session: Session, theirs: ClaudeAgentOptions
) -> None:
    ours = flags(ClaudeSdk().build(request(options, **fields), session).argv)
    theirs.cli_path = "claude"
    expected = flags(SubprocessCLITransport("", theirs)._build_command())
    assert {_compact(flag) for flag in ours} == {_compact(flag) for flag in expected}


def _compact(flag: str) -> str:
    name, _, value = flag.partition("=")
    return f"{name}={json.dumps(json.loads(value))}" if value.startswith("{") else flag


class Recorder(Transport):
    """Notes what is written, and answers nothing."""

    def __init__(self) -> None:
        self.written: list[dict[str, Any]] = []

    async def connect(self) -> None: ...
    async def close(self) -> None: ...
    async def end_input(self) -> None: ...

    def is_ready(self) -> bool:
        return True

    async def write(self, data: str) -> None:
        self.written.append(json.loads(data))
        raise CLIConnectionError("that is all")

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        for nothing in ():
            yield nothing


class NoWire:
    """Nobody is there."""

    said = ()

    async def write(self, line: bytes) -> None: ...
    async def end_input(self) -> None: ...

    async def lines(self) -> AsyncIterator[bytes]:
        for nothing in ():
            yield nothing


async def test_handshake_is_that_of_the_sdk() -> None:
    given = {"agents": {"reviewer": {"description": "reviews", "prompt": "review", "tools": ["Read"]}}}
    asked = request(given)
    talk = ClaudeSdkConversation(asked, ClaudeSdkOptions.parse(given), (), NoWire(), Desk())
    recorder = Recorder()
    with pytest.raises(CLIConnectionError):
        await ClaudeSDKClient(talk._sdk_options(), recorder).connect()
    first, second = map(json.loads, ClaudeSdk().build(asked, NEW).stdin.splitlines())
    assert first["request"] == recorder.written[0]["request"]
    assert AgentDefinition(**first["request"]["agents"]["reviewer"]).tools == ["Read"]
    assert second["message"] == {"role": "user", "content": "do it"}


def test_secrets_of_servers_are_in_a_file_of_the_spool() -> None:
    command = ClaudeSdk(TOOLS).build(request({"mcp_servers": SERVERS, "tools": ["add"]}), NEW)
    assert f"--mcp-config={FILES}/mcp.json" in command.argv
    assert "secret" not in " ".join(command.argv)
    servers = json.loads(command.files["mcp.json"])["mcpServers"]
    assert servers["files"] == {"type": "stdio", **SERVERS["files"]}
    assert servers["far"] == SERVERS["far"]
    assert servers["older"] == {**SERVERS["older"], "headers": {}}
    assert servers["runturn"] == {"type": "sdk", "name": "runturn"}
    assert command.live
    assert command.env["CLAUDE_CODE_ENTRYPOINT"] == "sdk-py"


def test_a_prompt_with_a_slash_is_text() -> None:
    stdin = ClaudeSdk().build(request(prompt="/help me"), NEW).stdin
    assert json.loads(stdin.splitlines()[1])["message"]["content"] == "\n/help me"


@pytest.mark.parametrize(
    ("options", "field", "message"),
    [
        *(({name: 1}, f"options.{name}", "not a parameter of Claude") for name in ("seed", "presence_penalty")),
        *(({name: []}, f"options.{name}", "not a parameter") for name in ("stop", "frequency_penalty")),
        ({"nonsense": 1}, "options.nonsense", "is not a known field"),
        ({"permissions": "ask"}, "options.permissions", "must be a JSON object"),
        ({"tools": "customer"}, "options.tools", "must be a JSON list"),
        ({"mcp_servers": {"x": {}}}, "options.mcp_servers.x.stdio.command", "is missing"),
        ({"mcp_servers": {"x": {"type": "ftp"}}}, "options.mcp_servers.x", "whose type is stdio, sse or http"),
        ({"permissions": {"deny": ["rm -rf"]}}, "options.permissions.deny", "is not a rule"),
        (
            {"permissions": {}, "permission_prompt_tool_name": "mcp__x__y"},
            "options.permission_prompt_tool_name",
            "mutually exclusive",
        ),
        (
            {"permissions": {"ask": True}, "permission_mode": "bypassPermissions"},
            "options.permission_mode",
            "never asks the producer",
        ),
        ({"tools": ["subtract"]}, "options.tools", "no tool 'subtract'; registered: add"),
        ({"tools": ["add"], "mcp_config": "m.json"}, "options.mcp_config", "cannot be combined"),
        ({"mcp_servers": {"runturn": {"command": "x"}}}, "options.mcp_servers.runturn", "in-process tools"),
    ],
)
def test_what_cannot_work_is_refused_by_name(options: Mapping[str, Any], field: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message) as refused:
        ClaudeSdk(TOOLS).check(request(dict(options)))
    assert (refused.value.field or "").startswith(field)


def test_without_the_sdk_no_agent_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adapters.claude_sdk.adapter.find_spec", lambda _: None)
    with pytest.raises(AgentNotFound, match=r"install runturn\[claude-sdk\]"):
        ClaudeSdk().build(request(), NEW)


def test_its_factory_takes_defaults_and_tools() -> None:
    adapter = ClaudeSdk(AgentConfig("/opt/claude", {"model": "opus"}, tools=(f"{__name__}:add",)))
    adapter.check(request({"tools": ["add"]}))
    assert adapter.build(request(), NEW).argv[0] == "/opt/claude"
    assert "--model=opus" in adapter.build(request(), NEW).argv
    assert (adapter.name, adapter.capabilities.live) == ("claude-sdk", True)


@pytest.mark.parametrize(
    ("foreign", "kind", "retried"),
    [
        (CLINotFoundError(), "agent_not_found", False),
        (CLIConnectionError("gone"), "host_unreachable", True),
        (ProcessError("failed", 1), "turn_failed", False),
        (CLIJSONDecodeError("{", ValueError()), "turn_failed", False),
        (RuntimeError("what"), "turn_failed", False),
    ],
)
def test_errors_of_the_sdk_are_errors_of_the_turn(foreign: Exception, kind: str, retried: bool) -> None:
    error = turn_error(foreign)
    assert (error.kind, error.retryable) == (kind, retried)


class OldWire(NoWire):
    """An agent from before hooks could block by failing; it stays."""

    said = tuple(ClaudeSdk().build(request(), NEW).stdin.splitlines())

    async def lines(self) -> AsyncIterator[bytes]:
        response = {"subtype": "success", "request_id": "handshake", "response": {"commands": []}}
        yield json.dumps({"type": "control_response", "response": response}).encode()
        await asyncio.Event().wait()


def test_handshake_that_fails_is_the_agents_error() -> None:
    response = {"subtype": "error", "request_id": "handshake", "error": "no such hook"}
    line = json.dumps({"type": "control_response", "response": response}).encode()
    assert ClaudeSdk().parser().feed(line, None) == (AgentStatus("error", "no such hook"),)


async def test_an_agent_whose_hooks_would_fail_open_is_refused() -> None:
    talk = ClaudeSdkConversation(request(), ClaudeSdkOptions(), (), OldWire(), Desk())
    with pytest.raises(AgentFailed, match="too old"):
        await talk.run()
