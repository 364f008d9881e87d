"""Claude Code's token counts."""

from __future__ import annotations

from typing import Any

from adapters.usage import NO_TOKENS, Tokens


def read_tokens(usage: dict[str, Any], known: Tokens = NO_TOKENS) -> Tokens:
    """Return the tokens of an API message's `usage`; a count that is missing, null or 0 is taken from `known`.

    Raise TypeError, ValueError or AttributeError if it is not a token count.
    """
    prompt = usage.get("input_tokens") or known.input_tokens
    output = usage.get("output_tokens") or known.output_tokens
    cache_read = usage.get("cache_read_input_tokens") or known.cache_read_input_tokens
    cache_creation = usage.get("cache_creation_input_tokens") or known.cache_creation_input_tokens
    # `|` accepts only integers; bits beyond 53 mean that one of them is negative or out of range.
    if (prompt | output | cache_read | cache_creation) >> 53:
        raise ValueError("not a token count")
    return Tokens(prompt, output, cache_read, cache_creation)


def long_lived_cache(usage: dict[str, Any]) -> int:
    """Return the tokens of an API message's `usage` that were written to the cache for an hour."""
    written = usage.get("cache_creation")
    kept = written.get("ephemeral_1h_input_tokens") if isinstance(written, dict) else None
    return kept if isinstance(kept, int) else 0


def read_model_tokens(used: dict[str, Any]) -> Tokens:
    """Return the tokens of one model in a report. Raise as `read_tokens`, and KeyError for a missing count."""
    return read_tokens(
        {
            "input_tokens": used["inputTokens"],
            "output_tokens": used["outputTokens"],
            "cache_read_input_tokens": used["cacheReadInputTokens"],
            "cache_creation_input_tokens": used["cacheCreationInputTokens"],
        }
    )
