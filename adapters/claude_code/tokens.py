"""How Claude Code writes down tokens and money."""

from __future__ import annotations

from typing import Any

from adapters.usage import NO_TOKENS, Tokens


def read_tokens(usage: dict[str, Any], known: Tokens = NO_TOKENS) -> Tokens:
    """Read an API message's `usage`; a count that is left out, null or 0 is as `known`.

    Raises TypeError, ValueError or AttributeError for what is no count of tokens.
    """
    prompt = usage.get("input_tokens") or known.input_tokens
    output = usage.get("output_tokens") or known.output_tokens
    cache_read = usage.get("cache_read_input_tokens") or known.cache_read_input_tokens
    cache_creation = usage.get("cache_creation_input_tokens") or known.cache_creation_input_tokens
    # `|` takes nothing but integers; what is left beyond 53 bits tells that one of them is negative or absurd.
    if (prompt | output | cache_read | cache_creation) >> 53:
        raise ValueError("no count of tokens")
    return Tokens(prompt, output, cache_read, cache_creation)


def read_model_tokens(used: dict[str, Any]) -> Tokens:
    """Read one model's part of a report. Raises as `read_tokens` does, and KeyError for a missing count."""
    return read_tokens(
        {
            "input_tokens": used["inputTokens"],
            "output_tokens": used["outputTokens"],
            "cache_read_input_tokens": used["cacheReadInputTokens"],
            "cache_creation_input_tokens": used["cacheCreationInputTokens"],
        }
    )
