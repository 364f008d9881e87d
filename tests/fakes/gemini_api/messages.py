"""A scripted reply as the chunks that the Gemini API streams."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import JsonValue

from tests.fakes.model_api.script import Block, HttpError, Reply, Text, Thinking, Usage

Chunk = dict[str, JsonValue]


def chunks(reply: Reply, model: str) -> Iterator[Chunk]:
    """One chunk for each block, and a last one with the reason and the final count."""
    for block in reply.blocks:
        yield _chunk([part(block)], model, _counts(reply, done=False))
    yield _chunk([], model, _counts(reply, done=True), reply.stop_reason or "STOP")


def whole(reply: Reply, model: str) -> Chunk:
    """The same in one piece, for those who do not stream."""
    parts = [part(block) for block in reply.blocks]
    return _chunk(parts, model, _counts(reply, done=True), reply.stop_reason or "STOP")


def part(block: Block) -> Chunk:
    """One block of an answer."""
    if isinstance(block, Text):
        return {"text": block.text}
    if isinstance(block, Thinking):
        return {"text": block.thinking, "thought": True}
    return {"functionCall": {"name": block.name, "args": block.input}}


def error_body(error: HttpError) -> Chunk:
    """What the API says of a request that it refuses."""
    details: list[JsonValue] = []
    if "per day" in error.message:
        violation: JsonValue = {"quotaId": "GenerateRequestsPerDayPerProjectPerModel"}
        details = [{"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [violation]}]
    body: Chunk = {"code": error.status, "message": error.message, "status": error.type, "details": details}
    return {"error": body}


def _chunk(parts: list[Chunk], model: str, usage: Chunk, reason: str | None = None) -> Chunk:
    candidate: Chunk = {"index": 0, "content": {"role": "model", "parts": [*parts]}}
    if reason is not None:
        candidate["finishReason"] = reason
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": model}


def _counts(reply: Reply, *, done: bool) -> Chunk:
    """What was used so far: what was read at once, what was written in the end. A third of that is thoughts."""
    usage = reply.usage
    thoughts = usage.output // 3 if done and any(isinstance(block, Thinking) for block in reply.blocks) else 0
    written = usage.output if done else 1
    return {
        "promptTokenCount": prompt_tokens(usage),
        "cachedContentTokenCount": usage.cache_read,
        "candidatesTokenCount": written - thoughts,
        "thoughtsTokenCount": thoughts,
        "totalTokenCount": prompt_tokens(usage) + written,
    }


def prompt_tokens(usage: Usage) -> int:
    """Gemini counts what it read from its cache as a part of the prompt."""
    return usage.input + usage.cache_read
