"""How the Gemini CLI writes down tokens.

What was read from the cache is a part of the input. Thoughts are no part of the output, but are billed as such.
"""

from __future__ import annotations

from typing import Any

from adapters.usage import Tokens

_LIMIT = 2**53  # no JSON reader keeps greater integers exact, and no agent counts so far


def count(value: object) -> int:
    """A count; none is 0. Raises TypeError or ValueError for what is no count."""
    if value is None:
        return 0
    if type(value) is not int:
        raise TypeError("not a count")
    if not 0 <= value < _LIMIT:
        raise ValueError("no such count")
    return value


def of_stats(stats: dict[str, Any]) -> Tokens:
    """One model's part of a result's `stats`: the thoughts are in nothing but the total."""
    prompt, cached = count(stats["input_tokens"]), count(stats.get("cached"))
    output = max(count(stats["total_tokens"]) - prompt, count(stats.get("output_tokens")))
    return Tokens(max(prompt - cached, 0), output, cached)


def of_message(tokens: dict[str, Any]) -> Tokens:
    """The `tokens` of a message in a session file. What tools of the API itself read counts as input."""
    prompt, cached = count(tokens["input"]) + count(tokens.get("tool")), count(tokens.get("cached"))
    output = count(tokens["output"]) + count(tokens.get("thoughts"))
    return Tokens(max(prompt - cached, 0), output, cached)
