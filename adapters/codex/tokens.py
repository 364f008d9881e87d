"""How Codex writes down tokens."""

from __future__ import annotations

from typing import Any

from adapters.toolkit.json_fields import count
from adapters.usage import Tokens

UNKNOWN_MODEL = "unknown"  # where no line names it: it has no price


def read_tokens(usage: dict[str, Any]) -> Tokens:
    """Read a count: what was cached is part of its input, what was reasoned part of its output.

    Raises KeyError, TypeError, AttributeError, or ValueError for what is no count of tokens.
    """
    read, written = count(usage.get("cached_input_tokens", 0)), count(usage.get("cache_write_input_tokens", 0))
    fresh, output = count(usage["input_tokens"]) - read - written, count(usage["output_tokens"])
    if min(fresh, output, read, written) < 0:
        raise ValueError("no count of tokens")
    return Tokens(fresh, output, read, written)


def tells_cache_writes(usage: dict[str, Any]) -> bool:
    """Whether a count tells what was written to the cache apart: it is among the input otherwise (0.140.0)."""
    return "cache_write_input_tokens" in usage
