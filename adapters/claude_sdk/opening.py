"""Opening of a conversation: the handshake with the hooks, then the prompt.

Both are the first lines of the agent's input, so they need no worker, and the prompt may have any length. The SDK
requests the same handshake; the transport answers it with the answer to this one.
"""

from __future__ import annotations

import uuid
from typing import Any

import orjson

from adapters.claude_sdk.gates import HOOK_TIMEOUT, HOOKS
from adapters.claude_sdk.options import ClaudeSdkOptions

SERVER = "runturn"  # the MCP server of the in-process tools: a tool is mcp__runturn__NAME
Record = dict[str, Any]  # a line of the control protocol


def opening(options: ClaudeSdkOptions, prompt: str) -> bytes:
    """Return the first lines of the agent's input."""
    lines = (
        {"type": "control_request", "request_id": "handshake", "request": handshake(options)},
        user_message(prompt, str(uuid.uuid4())),
    )
    return b"".join(orjson.dumps(line) + b"\n" for line in lines)


def handshake(options: ClaudeSdkOptions) -> Record:
    """Return the handshake that `ClaudeSDKClient` requests for the same options."""
    hooks: dict[str, list[Record]] = {}
    for number, (event, failing) in enumerate(HOOKS):
        hook: Record = {"matcher": None, "hookCallbackIds": [f"hook_{number}"], "timeout": HOOK_TIMEOUT}
        hooks[event] = [hook if failing is None else {**hook, "onFailure": failing}]
    request: Record = {"subtype": "initialize", "hooks": hooks}
    agents = subagents(options)
    return {**request, "agents": agents} if agents else request


def subagents(options: ClaudeSdkOptions) -> dict[str, Record]:
    """Return the subagents in the SDK's format."""
    return {name: agent.model_dump(mode="json", exclude_none=True) for name, agent in options.agents.items()}


def user_message(text: str, message_id: str) -> Record:
    """Return a user message with an id, under which the agent reports that it has handled the message."""
    return {
        "type": "user",
        "message": {"role": "user", "content": text},
        "parent_tool_use_id": None,
        "session_id": "default",
        "uuid": message_id,
    }
