"""Escapes prompts so that the Gemini CLI treats them as plain text."""

from __future__ import annotations

import re

MAX_BYTES = 8 * 1024 * 1024  # it truncates its standard input there (0.61.0)

# A reference to a file, a resource or a subagent: an @ without a backslash, followed by a path. If there is no
# such file, it searches the workspace for one with a similar name.
_REFERENCE = re.compile(r"(?<!\\)@(?=[^ \t\n\r,;!?()\[\]{}.]|\.[^ \t\n\r])")


def encoded(prompt: str, *, slash_command: bool, file_references: bool) -> bytes:
    """Return the prompt for standard input."""
    if not file_references:
        prompt = _REFERENCE.sub(r"\\@", prompt)
    if prompt.startswith("/") and not slash_command:
        prompt = "\n" + prompt
    return prompt.encode()
