"""A scripted reply as the API's wire format: a sequence of SSE events, or one JSON message. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import JsonValue

from .script import PLACEHOLDER_OUTPUT_TOKENS, Block, HttpError, Reply, Text, Thinking, ToolUse, Usage

JsonObject = dict[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Event:
    """One server-sent event."""

    name: str
    data: JsonObject

    def encode(self) -> bytes:
        """The bytes on the wire."""
        return f"event: {self.name}\ndata: {json.dumps(self.data)}\n\n".encode()


def stop_reason(reply: Reply) -> str:
    """Why the reply stops: as scripted, else by what it holds."""
    if reply.stop_reason is not None:
        return reply.stop_reason
    return "tool_use" if any(isinstance(block, ToolUse) for block in reply.blocks) else "end_turn"


def message_events(reply: Reply, *, model: str, message_id: str) -> list[Event]:
    """All events of a streamed reply, `message_start` to `message_stop`."""
    start = _message(model, message_id, content=[], usage=_usage(reply.usage, PLACEHOLDER_OUTPUT_TOKENS))
    events = [_event("message_start", message=start)]
    for index, block in enumerate(reply.blocks):
        opening, deltas = _open_block(block, f"{message_id}_{index}", reply.chunks)
        events.append(_event("content_block_start", index=index, content_block=opening))
        events += [_event("content_block_delta", index=index, delta=delta) for delta in deltas]
        events.append(_event("content_block_stop", index=index))
    ending: JsonObject = {"stop_reason": stop_reason(reply), "stop_sequence": None}
    if reply.stop_details is not None:
        ending["stop_details"] = reply.stop_details
    events.append(_event("message_delta", delta=ending, usage=_usage(reply.usage, reply.usage.output)))
    events.append(_event("message_stop"))
    return events


def whole_message(reply: Reply, *, model: str, message_id: str) -> JsonObject:
    """A reply that is not streamed."""
    content: list[JsonValue] = [
        _whole_block(block, f"{message_id}_{index}") for index, block in enumerate(reply.blocks)
    ]
    message = _message(model, message_id, content, _usage(reply.usage, reply.usage.output))
    message["stop_reason"] = stop_reason(reply)
    if reply.stop_details is not None:
        message["stop_details"] = reply.stop_details
    return message


def error_event(error_type: str, message: str) -> Event:
    """The event that the API sends when it fails after the status line."""
    return Event("error", error_body(error_type, message))


def error_body(error_type: str, message: str) -> JsonObject:
    """The body of a refused request."""
    return {"type": "error", "error": {"type": error_type, "message": message}}


def http_error_body(error: HttpError) -> JsonObject:
    """The body of a scripted refusal."""
    return error_body(error.type, error.message)


def _event(name: str, **data: JsonValue) -> Event:
    return Event(name, {"type": name, **data})


def _message(model: str, message_id: str, content: list[JsonValue], usage: JsonObject) -> JsonObject:
    return {
        "id": message_id,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }


def _usage(usage: Usage, output: int) -> JsonObject:
    return {
        "input_tokens": usage.input,
        "cache_creation_input_tokens": usage.cache_creation,
        "cache_read_input_tokens": usage.cache_read,
        "cache_creation": {
            "ephemeral_5m_input_tokens": usage.cache_creation - usage.cache_creation_1h,
            "ephemeral_1h_input_tokens": usage.cache_creation_1h,
        },
        "output_tokens": output,
        "service_tier": "standard",
    }


def _whole_block(block: Block, block_id: str) -> JsonObject:
    match block:
        case Text(text=text):
            return {"type": "text", "text": text}
        case Thinking(thinking=thinking, signature=signature):
            return {"type": "thinking", "thinking": thinking, "signature": signature}
        case ToolUse(name=name, input=arguments):
            return {"type": "tool_use", "id": f"toolu_{block_id}", "name": name, "input": arguments}


def _open_block(block: Block, block_id: str, chunks: int) -> tuple[JsonObject, list[JsonValue]]:
    """The empty block that opens a stream of deltas, and the deltas."""
    opening = _whole_block(block, block_id)
    match block:
        case Text(text=text):
            opening["text"] = ""
            return opening, [{"type": "text_delta", "text": part} for part in _parts(text, chunks)]
        case Thinking(thinking=thinking, signature=signature):
            opening |= {"thinking": "", "signature": ""}
            deltas: list[JsonValue] = [
                {"type": "thinking_delta", "thinking": part} for part in _parts(thinking, chunks)
            ]
            return opening, [*deltas, {"type": "signature_delta", "signature": signature}]
        case ToolUse(input=arguments):
            opening["input"] = {}
            whole = json.dumps(arguments)
            return opening, [{"type": "input_json_delta", "partial_json": part} for part in _parts(whole, chunks)]


def _parts(text: str, chunks: int) -> Iterator[str]:
    """`text` in about `chunks` parts of equal length."""
    size = max(1, -(-len(text) // chunks))
    for start in range(0, len(text), size):
        yield text[start : start + size]
