"""The Gemini CLI's token counts.

Cached tokens are part of the input. Thoughts are not part of the output, but are billed as output.
"""

from __future__ import annotations

from typing import Any

from adapters.usage import Tokens

_LIMIT = 2**53  # many JSON readers lose precision beyond this; no agent counts that far


def count(value: object) -> int:
    """Return the count, 0 for None. Raise TypeError or ValueError for anything else."""
    if value is None:
        return 0
    if type(value) is not int:
        raise TypeError("not a count")
    if not 0 <= value < _LIMIT:
        raise ValueError("count out of range")
    return value


def of_stats(stats: dict[str, Any]) -> Tokens:
    """Return the tokens of one model in a result's `stats`, where only the total includes thoughts."""
    prompt, cached = count(stats["input_tokens"]), count(stats.get("cached"))
    output = max(count(stats["total_tokens"]) - prompt, count(stats.get("output_tokens")))
    return Tokens(max(prompt - cached, 0), output, cached)


def of_message(tokens: dict[str, Any]) -> Tokens:
    """Return the `tokens` of a message in a session file. Input of the API's own tools counts as input."""
    prompt, cached = count(tokens["input"]) + count(tokens.get("tool")), count(tokens.get("cached"))
    output = count(tokens["output"]) + count(tokens.get("thoughts"))
    return Tokens(max(prompt - cached, 0), output, cached)
