"""What Anthropic's models cost, for turns that ended before Claude Code could say so itself.

US dollars per million tokens, as Claude Code 2.1.330 billed them when asked on 2026-11-21. A model that is not in
the table has no price: its cost is unknown, not zero. Claude Code itself prices unknown models at $5/$25.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from adapters.usage import Tokens

_DATE = re.compile(r"-\d{8}$|@\d{8}$")  # claude-sonnet-4-5-20250929 is claude-sonnet-4-5
_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million tokens."""

    input: float
    output: float

    def cost_usd(self, tokens: Tokens, long_lived_cache: int) -> float:
        """Cache reads cost a tenth of the input price, writes 1.25 times it, or twice if kept for an hour."""
        short_lived = tokens.cache_creation_input_tokens - long_lived_cache
        inputs = (
            tokens.input_tokens
            + 0.1 * tokens.cache_read_input_tokens
            + 1.25 * short_lived
            + 2.0 * long_lived_cache
        )
        return (self.input * inputs + self.output * tokens.output_tokens) / _MILLION


PRICES: dict[str, Price] = {
    "claude-opus-4-8": Price(5.0, 25.0),
    "claude-sonnet-4-5": Price(3.0, 15.0),
    "claude-haiku-4-5": Price(1.0, 5.0),
}


def cost_usd(model: str, tokens: Tokens, long_lived_cache: int = 0) -> float | None:
    """The cost of tokens; None for a model without a price. `long_lived_cache`: writes kept for an hour."""
    price = PRICES.get(_DATE.sub("", model))
    return price.cost_usd(tokens, long_lived_cache) if price else None
