"""Shortens an agent's texts for display."""

from __future__ import annotations

import re
from collections.abc import Iterable

MAX_ERROR_BYTES = 2048
MAX_SUMMARY = 200  # characters
MAX_OUTPUT = 300  # characters

_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")  # all CSI sequences, including colours
_GAP = "\n…\n"


def strip_ansi(text: str) -> str:
    """Return the text without terminal control sequences."""
    return _ANSI.sub("", text)


def beginning(text: str) -> str:
    """Return the beginning of a tool's output, without colours."""
    return strip_ansi(text[:MAX_OUTPUT])


def texts_of(content: object) -> str:
    """Return the text of a result's content: a string or a list of MCP content blocks."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        texts = [block.get("text") for block in content if isinstance(block, dict)]
        return "\n".join(text for text in texts if isinstance(text, str))
    return ""


def shorten(text: str, limit: int = MAX_ERROR_BYTES) -> str:
    """Return the first line, which has the exit code, and the end, which has the failure."""
    data = text.encode(errors="replace")
    if len(data) <= limit:
        return text
    first, _, rest = data.partition(b"\n")
    head = first[: limit // 2]
    room = limit - len(head) - len(_GAP.encode())
    tail = (rest or first)[-room:]
    return head.decode(errors="ignore") + _GAP + tail.decode(errors="ignore")


def summary(text: str) -> str:
    """Return the beginning of the first line."""
    return text.partition("\n")[0][:MAX_SUMMARY]


def summary_of_call(arguments: object, names: Iterable[str]) -> str:
    """Return a summary of the first of these tool call arguments that is text; "" if there is none."""
    if not isinstance(arguments, dict):
        return ""
    texts = (arguments.get(name) for name in names)
    return next((summary(text) for text in texts if isinstance(text, str)), "")
