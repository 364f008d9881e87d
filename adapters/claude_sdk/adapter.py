"""The adapter `claude-sdk`: Claude Code on any host, driven by the Claude Agent SDK in the worker."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from typing import cast

import orjson
from pydantic import JsonValue

from adapters.claude_code.adapter import VERSIONS, ClaudeCode, prompt_text, turn_flags
from adapters.claude_sdk.opening import SERVER, opening
from adapters.claude_sdk.options import ClaudeSdkOptions
from adapters.claude_sdk.parser import ClaudeSdkParser
from adapters.command import FILES, Command
from adapters.contract import AgentConfig, Session
from adapters.errors import AgentNotFound
from adapters.live import Conversation, Desk, Wire
from adapters.protocol.request import TurnRequest
from adapters.toolkit.tool_functions import Toolbox
from adapters.turn_state import Parser

# The versions of its recordings; the matrix of `make test-agents` has no live turns.
_VERSIONS = replace(VERSIONS, proved=("2.1.197", "2.1.330"))
_MCP_FILE = "mcp.json"
_LIVE = {
    "CLAUDE_CODE_ENTRYPOINT": "sdk-py",
    "CLAUDE_CODE_SDK_READS_SESSION_STATE": "1",  # makes it report when it is idle
}


class ClaudeSdk(ClaudeCode):
    """Adapter of the agent `claude-sdk`. One instance serves all turns; it contains only configuration."""

    name = "claude-sdk"
    _options_type = ClaudeSdkOptions
    capabilities = replace(ClaudeCode.capabilities, live=True, versions=_VERSIONS)

    def __init__(self, config: AgentConfig = AgentConfig()) -> None:  # noqa: B008 - immutable
        """Raise InvalidRequest for invalid options."""
        super().__init__(config)
        self._toolbox = Toolbox.installed(config.tools)

    def check(self, request: TurnRequest) -> None:
        """Raise InvalidRequest if the agent cannot run the request."""
        super().check(request)
        self._toolbox.check(self._sdk_options(request).tools)

    def build(self, request: TurnRequest, session: Session) -> Command:
        """Return the command for this attempt. Raise AgentNotFound if the SDK is missing: no agent must start."""
        if find_spec("claude_agent_sdk") is None:
            raise _missing("there is no module claude_agent_sdk")
        options = self._sdk_options(request)
        plain = super().build(request, session)
        servers = _servers(options)
        arguments = [*turn_flags(request, _with_mode(options), session), "--input-format", "stream-json"]
        if options.permissions is not None:
            arguments.append("--permission-prompt-tool=stdio")
        elif options.permission_prompt_tool_name is not None:
            arguments.append(f"--permission-prompt-tool={options.permission_prompt_tool_name}")
        if options.sandbox is not None:
            arguments.append(f"--settings={orjson.dumps({'sandbox': options.sandbox.settings}).decode()}")
        if servers:
            arguments.append(f"--mcp-config={FILES}/{_MCP_FILE}")
        return replace(
            plain,
            argv=(self.command, *arguments),
            stdin=opening(options, prompt_text(request.prompt, options)),
            env={**plain.env, **_LIVE},
            files={_MCP_FILE: orjson.dumps({"mcpServers": servers})} if servers else {},
            live=True,
        )

    def parser(self) -> Parser:
        """Return a fresh parser."""
        return ClaudeSdkParser()

    def soft_stop(self, reason: str) -> bytes | None:
        """Return None: its hooks ask the worker (`Desk.refusal`), so it needs no stop file."""
        return None

    def converse(self, request: TurnRequest, wire: Wire, desk: Desk) -> Conversation:
        """Return the attempt's conversation. The first call imports the SDK, which takes half a second."""
        options = self._sdk_options(request)
        try:
            from adapters.claude_sdk.conversation import ClaudeSdkConversation  # noqa: PLC0415 - 0.6 s and 50 MB
        except ImportError as error:
            raise _missing(str(error)) from error
        tools = self._toolbox.load(options.tools)
        return ClaudeSdkConversation(request, options, tools, wire, desk)

    def _sdk_options(self, request: TurnRequest) -> ClaudeSdkOptions:
        options = cast(ClaudeSdkOptions, self._options(request))
        if not request.plan or options.permissions is None:
            return options
        # Allow rules are meant for work and do not apply to a plan turn; the producer may still allow a tool.
        rules = options.permissions.model_copy(update={"allow": (), "default": "deny"})
        return options.model_copy(update={"permissions": rules})


def _missing(why: str) -> AgentNotFound:
    return AgentNotFound(
        f"the agent claude-sdk needs the Python package claude-agent-sdk on the worker ({why}); "
        "install runturn[claude-sdk] there"
    )


def _with_mode(options: ClaudeSdkOptions) -> ClaudeSdkOptions:
    """Return options whose rules take effect: without a mode set, `bypassPermissions` would ignore them."""
    if options.permissions is None or "permission_mode" in options.model_fields_set:
        return options
    return options.model_copy(update={"permission_mode": "default"})


def _servers(options: ClaudeSdkOptions) -> dict[str, JsonValue]:
    servers: dict[str, JsonValue] = {
        name: server.model_dump(mode="json") for name, server in options.mcp_servers.items()
    }
    if options.tools:
        servers[SERVER] = {"type": "sdk", "name": SERVER}
    return servers
