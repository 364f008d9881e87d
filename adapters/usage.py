"""Tokens and money. The four token kinds are disjoint; a cost that is not known is None, never 0."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum


class UsageSource(StrEnum):
    """Where a turn's usage was read."""

    RESULT = "result"  # the agent's own final report: observed
    SESSION_FILES = "session_files"  # the agent's records on its host: observed
    STREAM = "stream"  # summed up from events: an estimate, its output unknown or partial
    NONE = "none"  # nothing was seen

    @property
    def observed(self) -> bool:
        """Whether these are billed numbers; estimates are never added to them."""
        return self in (UsageSource.RESULT, UsageSource.SESSION_FILES)


@dataclass(
    slots=True, unsafe_hash=True
)  # not frozen, as the events: building a frozen one costs three times as much
class Tokens:
    """Billed tokens of the four disjoint kinds. A value: nobody changes one."""

    input_tokens: int = 0  # read at full price: neither from the cache nor written to it
    output_tokens: int = 0
    cache_read_input_tokens: int = 0
    cache_creation_input_tokens: int = 0

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_read_input_tokens + other.cache_read_input_tokens,
            self.cache_creation_input_tokens + other.cache_creation_input_tokens,
        )

    def __sub__(self, other: Tokens) -> Tokens:
        return Tokens(
            self.input_tokens - other.input_tokens,
            self.output_tokens - other.output_tokens,
            self.cache_read_input_tokens - other.cache_read_input_tokens,
            self.cache_creation_input_tokens - other.cache_creation_input_tokens,
        )

    @property
    def total(self) -> int:
        """All billed tokens, cached ones included."""
        return self.prompt + self.output_tokens

    @property
    def prompt(self) -> int:
        """All tokens that went in, cached ones included."""
        return self.input_tokens + self.cache_read_input_tokens + self.cache_creation_input_tokens


NO_TOKENS = Tokens()


@dataclass(slots=True, unsafe_hash=True)
class ModelUsage:
    """What one model was billed for. Nobody changes one, as with tokens."""

    tokens: Tokens = NO_TOKENS
    cost_usd: float | None = None  # None: no price is known

    def __add__(self, other: ModelUsage) -> ModelUsage:
        priced = self.cost_usd is not None and other.cost_usd is not None
        cost = (self.cost_usd or 0.0) + (other.cost_usd or 0.0) if priced else None
        return replace(self, tokens=self.tokens + other.tokens, cost_usd=cost)


@dataclass(frozen=True, slots=True)
class Usage:
    """What a turn was billed for, by model."""

    by_model: Mapping[str, ModelUsage]
    source: UsageSource
    complete: bool = True  # False: one message was in flight when the agent ended, its bill is not in here

    @property
    def tokens(self) -> Tokens:
        """The sum over all models."""
        return sum((used.tokens for used in self.by_model.values()), NO_TOKENS)

    @property
    def cost_usd(self) -> float | None:
        """The sum over all models, in US dollars; None if nothing was seen, or one of them has no price."""
        if self.source is UsageSource.NONE:
            return None
        return sum_costs(used.cost_usd for used in self.by_model.values())


NO_USAGE = Usage(by_model={}, source=UsageSource.NONE)


def combine(usages: Iterable[Usage]) -> Usage:
    """The usage of several attempts. Observed numbers are added up; estimates count only where nothing else is."""
    attempts = list(usages)
    known = [usage for usage in attempts if usage.source is not UsageSource.NONE]
    observed = [usage for usage in known if usage.source.observed]
    chosen = observed or known
    if not chosen:
        return replace(NO_USAGE, complete=all(usage.complete for usage in attempts))
    by_model: dict[str, ModelUsage] = {}
    for usage in chosen:
        for model, used in usage.by_model.items():
            by_model[model] = by_model[model] + used if model in by_model else used
    # The weaker of two sources names the sum: session files stand in for a report that was not there.
    source = max((usage.source for usage in chosen), key=list(UsageSource).index)
    complete = all(usage.complete for usage in attempts) and len(observed) in (0, len(known))
    return Usage(by_model, source, complete)


def sum_costs(costs: Iterable[float | None]) -> float | None:
    """Add up costs in US dollars; None if one of them is unknown."""
    total = 0.0
    for cost in costs:
        if cost is None:
            return None
        total += cost
    return total
