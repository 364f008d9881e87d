"""A scripted reply as the events that the Responses API streams. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator

from pydantic import JsonValue

from tests.fakes.model_api.script import Block, HttpError, Reply, Text, Thinking, ToolUse, Usage

Event = dict[str, JsonValue]

_NAMESPACES = {"spawn_agent": "collaboration", "wait_agent": "collaboration"}


def shell(command: str) -> ToolUse:
    """A call of Codex's shell tool, which is waited for as long as Codex can wait."""
    return ToolUse("exec_command", {"cmd": command, "yield_time_ms": 30_000})


def spawn(task: str) -> ToolUse:
    """A call that starts a subagent."""
    return ToolUse("spawn_agent", {"task_name": task, "message": "help", "fork_turns": "none"})


def events(reply: Reply, response_id: str, *, compacts: bool = False) -> Iterator[Event]:
    """All events of a reply, the bill in the last one."""
    yield {"type": "response.created", "response": {"id": response_id}}
    for index, block in enumerate(reply.blocks):
        item = _compacted(response_id) if compacts else _item(block, f"{response_id}_{index}")
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": "response.completed", "response": {"id": response_id, "usage": counts(reply.usage)}}


def compaction(reply: Reply, response_id: str) -> Event:
    """A conversation made shorter, as `/v1/responses/compact` answers: in one piece."""
    body: Event = {"id": response_id, "object": "response.compaction", "usage": counts(reply.usage)}
    return body | {"output": [_compacted(response_id)]}


def encode(event: Event) -> bytes:
    """The bytes on the wire."""
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def counts(usage: Usage) -> Event:
    """What was cached, or is from now on, is a part of the input; a third of the output is reasoning."""
    prompt = usage.input + usage.cache_read + usage.cache_creation
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_creation},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.output // 3},
        "total_tokens": prompt + usage.output,
    }


def error_body(error: HttpError) -> Event:
    """What the API says of a request that it refuses."""
    return {"error": {"message": error.message, "type": error.type, "code": error.type, "param": None}}


def _compacted(response_id: str) -> Event:
    """What stands for a conversation from then on; only the API can read it."""
    return {"type": "compaction", "id": f"cmp_{response_id}", "encrypted_content": "c2VjcmV0"}


def _item(block: Block, item_id: str) -> Event:
    if isinstance(block, Text):
        content: list[JsonValue] = [{"type": "output_text", "text": block.text}]
        return {"type": "message", "role": "assistant", "id": f"msg_{item_id}", "content": content}
    if isinstance(block, Thinking):
        summary: list[JsonValue] = [{"type": "summary_text", "text": block.thinking}]
        return {"type": "reasoning", "id": f"rs_{item_id}", "summary": summary, "encrypted_content": "c2VjcmV0"}
    call: Event = {"type": "function_call", "id": f"fc_{item_id}", "call_id": f"call_{item_id}"}
    call |= {"name": block.name, "arguments": json.dumps(block.input)}
    return call | ({"namespace": _NAMESPACES[block.name]} if block.name in _NAMESPACES else {})
