"""Shortens the results of Claude Code's tool calls for display."""

from __future__ import annotations

import re

from adapters.toolkit.truncate import beginning, shorten, strip_ansi, texts_of

_ENVELOPE = re.compile(r"\A\s*<tool_use_error>(.*)</tool_use_error>\s*\Z", re.DOTALL)


def tool_error_text(content: object) -> str:
    """Return the text of a failed call: unwrapped, without colours, at most 2048 bytes."""
    return shorten(strip_ansi(strip_envelope(texts_of(content))))


def tool_output(content: object) -> str:
    """Return the beginning of a call's result, without colours."""
    return beginning(texts_of(content))


def strip_envelope(text: str) -> str:
    """Return the text without an enclosing <tool_use_error> element."""
    match = _ENVELOPE.match(text)
    return match[1] if match else text
