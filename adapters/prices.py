"""Model prices for agents that do not report their cost: a dated table, which an operator can replace with a file.

`prices.toml` next to this module is the built-in table, with a source for every number. A cost is unknown (None)
if the table lacks the model, the day, or a price for one of the token kinds.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator
from datetime import date
from importlib import resources
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from adapters.protocol.validation_errors import invalid
from adapters.usage import Tokens

_DATED = re.compile(r"-\d{4}-\d{2}-\d{2}$")
_MILLION = 1_000_000

Dollars = Annotated[float, Field(ge=0, allow_inf_nan=False)]  # per million tokens


class LongPrompt(BaseModel):
    """Surcharge on a request with a long prompt."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    over: Annotated[int, Field(gt=0)]  # prompt tokens, including cached ones
    input: Annotated[float, Field(gt=0, allow_inf_nan=False)]  # factor on all prompt tokens
    output: Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Price(BaseModel):
    """Price of one model for a period; `prices.toml` describes the fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: Annotated[str, Field(min_length=1)]
    also: tuple[str, ...] = ()
    dated: bool = False
    since: date | None = Field(default=None, alias="from")
    until: date | None = None
    input: Dollars | None = None
    output: Dollars | None = None
    cache_read: Dollars | None = None
    cache_write: Dollars | None = None
    long_prompt: LongPrompt | None = None
    source: Annotated[str, Field(min_length=1)]
    checked: date

    def covers(self, model: str, day: date) -> bool:
        """Return True if this is the model's price on that day."""
        names = (self.model, *self.also)
        named = model in names or (self.dated and _DATED.sub("", model) in names)
        return named and (self.since or day) <= day <= (self.until or day)

    def cost_usd(self, tokens: Tokens, *, long: bool = False) -> float | None:
        """Return the cost of these tokens in US dollars; None if one of the kinds has no price."""
        longer = self.long_prompt if long else None
        into, out = (longer.input, longer.output) if longer else (1.0, 1.0)
        kinds = (
            (tokens.input_tokens, self.input, into),
            (tokens.cache_read_input_tokens, self.cache_read, into),
            (tokens.cache_creation_input_tokens, self.cache_write, into),
            (tokens.output_tokens, self.output, out),
        )
        total = 0.0
        for count, price, factor in kinds:
            if count and price is None:
                return None
            total += count * (price or 0.0) * factor
        return total / _MILLION


class _Document(BaseModel):
    """Price file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    price: tuple[Price, ...]


class PriceTable:
    """Prices by model and day. `today` returns the day in UTC."""

    def __init__(self, prices: Iterable[Price], today: Callable[[], date]) -> None:
        self._prices = tuple(prices)
        self._today = today

    @classmethod
    def parse(cls, text: str, today: Callable[[], date]) -> PriceTable:
        """Parse a price file's text. Raise ValueError, describing the fault, if it is invalid."""
        try:
            return cls(_Document.model_validate(tomllib.loads(text)).price, today)
        except ValidationError as error:
            raise ValueError(invalid(error, kind=_Document).message) from error

    @classmethod
    def builtin(cls, today: Callable[[], date]) -> PriceTable:
        """Return the built-in table."""
        return cls.parse(resources.files(__package__).joinpath("prices.toml").read_text("utf-8"), today)

    def __iter__(self) -> Iterator[Price]:
        return iter(self._prices)

    def cost_usd(self, model: str, tokens: Tokens) -> float | None:
        """Return the cost in US dollars of any number of requests without long prompts."""
        price = self._price(model)
        return price.cost_usd(tokens) if price else None

    def request_cost_usd(self, model: str, tokens: Tokens) -> float | None:
        """Return the cost in US dollars of one request: some models charge more for a long prompt."""
        price = self._price(model)
        if price is None:
            return None
        limit = price.long_prompt
        return price.cost_usd(tokens, long=limit is not None and tokens.prompt > limit.over)

    def _price(self, model: str) -> Price | None:
        day = self._today()
        return next((price for price in self._prices if price.covers(model, day)), None)


NO_PRICES = PriceTable((), date.today)  # no model has a price
