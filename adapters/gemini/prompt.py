"""A prompt as the Gemini CLI takes it for nothing but text."""

from __future__ import annotations

import re

MAX_BYTES = 8 * 1024 * 1024  # it cuts its standard input off there (0.61.0)

# What it would read a file, a resource or a subagent's name from: an @ without a backslash, and a path behind it.
# Where it finds no such file, it searches the workspace for one with a similar name.
_REFERENCE = re.compile(r"(?<!\\)@(?=[^ \t\n\r,;!?()\[\]{}.]|\.[^ \t\n\r])")


def encoded(prompt: str, *, slash_command: bool, file_references: bool) -> bytes:
    """The prompt for its standard input."""
    if not file_references:
        prompt = _REFERENCE.sub(r"\\@", prompt)
    if prompt.startswith("/") and not slash_command:
        prompt = "\n" + prompt
    return prompt.encode()
