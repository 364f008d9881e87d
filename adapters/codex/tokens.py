"""Codex's token counts."""

from __future__ import annotations

from typing import Any

from adapters.toolkit.json_fields import count
from adapters.usage import Tokens

UNKNOWN_MODEL = "unknown"  # used if no line names the model; has no price


def read_tokens(usage: dict[str, Any]) -> Tokens:
    """Return the tokens of a count, whose input includes cached tokens and whose output includes reasoning.

    Raise KeyError, TypeError, AttributeError or ValueError if it is not a token count.
    """
    read, written = count(usage.get("cached_input_tokens", 0)), count(usage.get("cache_write_input_tokens", 0))
    fresh, output = count(usage["input_tokens"]) - read - written, count(usage["output_tokens"])
    if min(fresh, output, read, written) < 0:
        raise ValueError("not a token count")
    return Tokens(fresh, output, read, written)


def tells_cache_writes(usage: dict[str, Any]) -> bool:
    """Return True if a count reports cache writes separately; otherwise they are part of the input (0.140.0)."""
    return "cache_write_input_tokens" in usage
