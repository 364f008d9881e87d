"""What a tool call of Claude Code has come to, cut down to what a person needs."""

from __future__ import annotations

import re

from adapters.texts import shorten, strip_ansi

MAX_OUTPUT = 300  # characters

_ENVELOPE = re.compile(r"\A\s*<tool_use_error>(.*)</tool_use_error>\s*\Z", re.DOTALL)


def tool_error_text(content: object) -> str:
    """The text of a failed call's result: unwrapped, without colours, at most 2048 bytes."""
    return shorten(strip_ansi(strip_envelope(result_text(content))))


def tool_output(content: object) -> str:
    """How a call's result begins, without colours."""
    return strip_ansi(result_text(content)[:MAX_OUTPUT])


def result_text(content: object) -> str:
    """The text in a `tool_result` block's content: a string, or a list of blocks."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        texts = [block.get("text") for block in content if isinstance(block, dict)]
        return "\n".join(text for text in texts if isinstance(text, str))
    return ""


def strip_envelope(text: str) -> str:
    """Remove the <tool_use_error> element around the whole text."""
    match = _ENVELOPE.match(text)
    return match[1] if match else text
