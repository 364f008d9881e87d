"""Prices of Anthropic's models, for turns that ended before Claude Code reported their cost.

US dollars per million tokens, as Claude Code 2.1.330 charged on 2026-11-21 for messages of known size, model by
model. The cost of a model that is not in the table is unknown, not zero. (Claude Code itself assumes a price for
unknown models.)
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from adapters.usage import Tokens

_DATE = re.compile(r"-\d{8}$|@\d{8}$")  # claude-sonnet-4-5-20250929 is claude-sonnet-4-5
_VARIANT = re.compile(r"\[\w+\]$")  # claude-sonnet-4-5[1m] costs the same
_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million tokens."""

    input: float
    output: float
    cache_read: float
    long_prompt: int | None = None  # tokens; a message with a longer prompt costs `long_factor` times as much
    long_factor: float = 1.0

    def cost_usd(self, tokens: Tokens, long_lived_cache: int) -> float:
        """Return the cost of one message. Cache writes cost 1.25 times the input price, twice if kept an hour."""
        short_lived = tokens.cache_creation_input_tokens - long_lived_cache
        inputs = tokens.input_tokens + 1.25 * short_lived + 2.0 * long_lived_cache
        cost = (
            self.input * inputs
            + self.cache_read * tokens.cache_read_input_tokens
            + self.output * tokens.output_tokens
        ) / _MILLION
        is_long = self.long_prompt is not None and tokens.prompt > self.long_prompt
        return cost * self.long_factor if is_long else cost


PRICES: dict[str, Price] = {
    "claude-fable-5-2": Price(8.0, 40.0, 0.2),
    "claude-fable-5": Price(10.0, 50.0, 1.0),
    "claude-opus-5-5": Price(4.0, 20.0, 0.2),
    "claude-opus-5": Price(5.0, 25.0, 0.5),
    "claude-opus-4-8": Price(5.0, 25.0, 0.5),
    "claude-opus-4-7": Price(5.0, 25.0, 0.5),
    "claude-opus-4-6": Price(5.0, 25.0, 0.5),
    "claude-opus-4-5": Price(5.0, 25.0, 0.5),
    "claude-sonnet-5-5": Price(2.0, 10.0, 0.1),
    "claude-sonnet-5": Price(2.0, 10.0, 0.2),
    "claude-sonnet-4-6": Price(3.0, 15.0, 0.3),
    "claude-sonnet-4-5": Price(3.0, 15.0, 0.3),
    "claude-sonnet-4-0": Price(3.0, 15.0, 0.3),
    "claude-sonnet-4": Price(3.0, 15.0, 0.3),
    "claude-haiku-5-5": Price(0.1, 0.5, 0.01, long_prompt=100_000, long_factor=5.0),
    "claude-haiku-4-5": Price(1.0, 5.0, 0.1),
    "claude-3-7-sonnet": Price(3.0, 15.0, 0.3),
    "claude-3-5-haiku": Price(0.8, 4.0, 0.08),
}


def cost_usd(model: str, tokens: Tokens, long_lived_cache: int = 0) -> float | None:
    """Return the cost of one message; None for an unknown model. `long_lived_cache`: writes kept for an hour."""
    price = PRICES.get(_DATE.sub("", _VARIANT.sub("", model)))
    return price.cost_usd(tokens, long_lived_cache) if price else None
