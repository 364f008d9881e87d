"""Conversation with one agent. Importing this module imports the Claude Agent SDK."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

import anyio
from claude_agent_sdk import (
    AgentDefinition,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    ClaudeSDKError,
    CLIConnectionError,
    CLIJSONDecodeError,
    CLINotFoundError,
    HookMatcher,
    PermissionResultAllow,
    PermissionResultDeny,
    ProcessError,
    SdkMcpTool,
    ToolPermissionContext,
    create_sdk_mcp_server,
)
from pydantic import JsonValue

from adapters import errors
from adapters.claude_code.adapter import prompt_text
from adapters.claude_sdk.gates import HOOK_TIMEOUT, HOOKS, Answer, Gates
from adapters.claude_sdk.opening import SERVER, Record, subagents, user_message
from adapters.claude_sdk.options import ClaudeSdkOptions
from adapters.claude_sdk.transport import WireTransport
from adapters.errors import InvalidRequest, TurnError
from adapters.live import Control, ControlRequest, Desk, Wire
from adapters.protocol.request import TurnRequest
from adapters.toolkit.tool_functions import ToolContext, ToolFunction

# Exceptions of the SDK, most specific first. It does not run the agent's process here, but may still raise errors
# about it.
_FAULTS: tuple[tuple[type[Exception], type[TurnError]], ...] = (
    (CLINotFoundError, errors.AgentNotFound),
    (CLIConnectionError, errors.HostUnreachable),  # retried
    (ProcessError, errors.AgentFailed),
    (CLIJSONDecodeError, errors.AgentFailed),
    (ClaudeSDKError, errors.AgentFailed),
)
MODES = ("default", "acceptEdits", "plan", "bypassPermissions", "dontAsk", "auto")


class ClaudeSdkConversation:
    """Conversation of one attempt, led with the SDK's client."""

    def __init__(
        self,
        request: TurnRequest,
        options: ClaudeSdkOptions,
        tools: Sequence[ToolFunction],
        wire: Wire,
        desk: Desk,
    ) -> None:
        self._request = request
        self._options = options
        self._tools = tools
        self._wire = wire
        self._desk = desk
        self._gates = Gates(options, desk)
        self._client: ClaudeSDKClient | None = None
        self._transport: WireTransport | None = None
        self._led = anyio.Event()  # set once the handshake has succeeded or failed
        self._ending = False

    async def run(self) -> None:
        """Run the conversation until the agent exits. Raise TurnError if it fails."""
        transport = WireTransport(self._wire)
        client = ClaudeSDKClient(self._sdk_options(), transport)
        try:
            await client.connect()
            self._client, self._transport = client, transport
            self._led.set()
            await transport.rest()
            self._ending = True
            await self._wire.end_input()
            await transport.end()
        except Exception as error:
            if transport.ended:
                return  # the exit status decides
            raise turn_error(error, old=transport.holds_gates is False) from error
        finally:
            self._client = None
            self._led.set()
            await client.disconnect()

    async def control(self, request: ControlRequest) -> Mapping[str, JsonValue]:
        """Carry out a request, once the agent has answered the handshake, and return its answer."""
        await self._led.wait()
        client, value = self._client, request.value
        if client is None or self._ending:
            raise InvalidRequest("the agent is about to exit and accepts no more requests", field="control")
        try:
            return await self._controls[request.control](client, value)
        except ValueError as error:  # the value cannot be encoded as a line
            raise InvalidRequest(str(error), field="value") from error
        except Exception as error:
            raise turn_error(error) from error

    # -- control requests

    @property
    def _controls(
        self,
    ) -> dict[Control, Callable[[ClaudeSDKClient, str | None], Awaitable[Mapping[str, JsonValue]]]]:
        return {
            Control.INTERRUPT: self._interrupt,
            Control.SEND: self._send,
            Control.SET_MODEL: self._set_model,
            Control.SET_PERMISSION_MODE: self._set_permission_mode,
            Control.SERVER_INFO: self._server_info,
            Control.CONTEXT_USAGE: self._context_usage,
        }

    async def _interrupt(self, client: ClaudeSDKClient, _: str | None) -> Mapping[str, JsonValue]:
        await client.interrupt()
        return {}

    async def _send(self, client: ClaudeSDKClient, text: str | None) -> Mapping[str, JsonValue]:
        if not text or not text.strip():
            raise InvalidRequest("is empty; write what the agent should do", field="text")
        return {"message_id": await _say(client, prompt_text(text, self._options))}

    async def _set_model(self, client: ClaudeSDKClient, model: str | None) -> Mapping[str, JsonValue]:
        await client.set_model(model or None)
        return {"model": model or None}

    async def _set_permission_mode(self, client: ClaudeSDKClient, mode: str | None) -> Mapping[str, JsonValue]:
        if mode not in MODES:
            known = ", ".join(MODES)
            raise InvalidRequest(f"there is no permission mode {mode!r}; known: {known}", field="permission_mode")
        await client.set_permission_mode(cast(Any, mode))
        return {"permission_mode": mode}

    async def _server_info(self, client: ClaudeSDKClient, _: str | None) -> Mapping[str, JsonValue]:
        return cast(dict[str, JsonValue], await client.get_server_info() or {})

    async def _context_usage(self, client: ClaudeSDKClient, _: str | None) -> Mapping[str, JsonValue]:
        return cast(dict[str, JsonValue], dict(await client.get_context_usage()))

    # -- configuration of the SDK

    def _sdk_options(self) -> ClaudeAgentOptions:
        """Return the SDK's options without flags, which are in the command."""
        options = ClaudeAgentOptions(hooks=cast(Any, self._hooks()))
        if self._options.permissions is not None:
            options.can_use_tool = self._can_use_tool
        if self._tools:
            served = [self._served(tool) for tool in self._tools]
            options.mcp_servers = {SERVER: create_sdk_mcp_server(SERVER, tools=served)}
        agents = subagents(self._options)
        options.agents = {name: AgentDefinition(**fields) for name, fields in agents.items()} or None
        return options

    def _hooks(self) -> dict[str, list[HookMatcher]]:
        async def hook(happened: Mapping[str, Any], _: str | None, __: object) -> Answer:
            return await self._gates.answer(happened)

        return {
            event: [HookMatcher(hooks=[cast(Any, hook)], timeout=HOOK_TIMEOUT, on_failure=failing)]
            for event, failing in HOOKS
        }

    async def _can_use_tool(
        self, tool: str, arguments: dict[str, Any], context: ToolPermissionContext
    ) -> PermissionResultAllow | PermissionResultDeny:
        verdict = await self._gates.verdict(tool, arguments, context.tool_use_id or "")
        if verdict.allowed:
            return PermissionResultAllow()
        return PermissionResultDeny(message=verdict.reason or "The producer denied it")

    def _served(self, tool: ToolFunction) -> SdkMcpTool[Any]:
        async def handler(arguments: dict[str, Any]) -> dict[str, Any]:
            objection = self._desk.refusal()
            if objection is not None:
                return {"content": [{"type": "text", "text": objection}], "is_error": True}
            answer = await tool.call(arguments, self._context())
            return {"content": [{"type": "text", "text": answer.text}], "is_error": answer.is_error}

        return SdkMcpTool(tool.name, tool.description, tool.schema, handler)

    def _context(self) -> ToolContext:
        return ToolContext(self._request.turn_id, self._request.deadline_at, self._desk.remaining_tokens())


def turn_error(error: Exception, *, old: bool = False) -> TurnError:
    """Return the error of the turn. `old`: in this version, a failing hook would not block a tool."""
    if isinstance(error, TurnError):
        return error
    if old:
        return errors.AgentFailed(
            "this Claude Code is too old for the agent claude-sdk: a failing hook would not block a tool; "
            "update it on the host"
        )
    for foreign, ours in _FAULTS:
        if isinstance(error, foreign):
            return ours(str(error)[:500])
    return errors.AgentFailed(f"the Claude Agent SDK failed: {type(error).__name__}: {str(error)[:500]}")


async def _say(client: ClaudeSDKClient, text: str) -> str:
    message_id = str(uuid.uuid4())

    async def messages() -> AsyncIterator[Record]:
        yield user_message(text, message_id)

    await client.query(messages())
    return message_id
