"""What a tool call of Claude Code has come to, cut down to what a person needs."""

from __future__ import annotations

import re

from adapters.toolkit.truncate import beginning, shorten, strip_ansi, texts_of

_ENVELOPE = re.compile(r"\A\s*<tool_use_error>(.*)</tool_use_error>\s*\Z", re.DOTALL)


def tool_error_text(content: object) -> str:
    """The text of a failed call's result: unwrapped, without colours, at most 2048 bytes."""
    return shorten(strip_ansi(strip_envelope(texts_of(content))))


def tool_output(content: object) -> str:
    """How a call's result begins, without colours."""
    return beginning(texts_of(content))


def strip_envelope(text: str) -> str:
    """Remove the <tool_use_error> element around the whole text."""
    match = _ENVELOPE.match(text)
    return match[1] if match else text
