"""How texts of an agent are cut down to what a person needs."""

from __future__ import annotations

import re
from collections.abc import Iterable

MAX_ERROR_BYTES = 2048
MAX_SUMMARY = 200  # characters
MAX_OUTPUT = 300  # characters

_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")  # every CSI sequence, colours among them
_GAP = "\n…\n"


def strip_ansi(text: str) -> str:
    """Remove terminal control sequences."""
    return _ANSI.sub("", text)


def beginning(text: str) -> str:
    """How what a tool gave begins, without colours."""
    return strip_ansi(text[:MAX_OUTPUT])


def texts_of(content: object) -> str:
    """The text of a result's content: a string, or a list of blocks, as MCP has them."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        texts = [block.get("text") for block in content if isinstance(block, dict)]
        return "\n".join(text for text in texts if isinstance(text, str))
    return ""


def shorten(text: str, limit: int = MAX_ERROR_BYTES) -> str:
    """Keep the first line, which has the exit code, and the end, which has the failure."""
    data = text.encode(errors="replace")
    if len(data) <= limit:
        return text
    first, _, rest = data.partition(b"\n")
    head = first[: limit // 2]
    room = limit - len(head) - len(_GAP.encode())
    tail = (rest or first)[-room:]
    return head.decode(errors="ignore") + _GAP + tail.decode(errors="ignore")


def summary(text: str) -> str:
    """The beginning of its first line."""
    return text.partition("\n")[0][:MAX_SUMMARY]


def summary_of_call(arguments: object, names: Iterable[str]) -> str:
    """The first of these arguments of a tool's call that is a text, in short; blank: there is none."""
    if not isinstance(arguments, dict):
        return ""
    texts = (arguments.get(name) for name in names)
    return next((summary(text) for text in texts if isinstance(text, str)), "")
