"""Tokens and costs. The four token kinds are disjoint; an unknown cost is None, never 0."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

MAX_MODELS = 50  # of one attempt; an agent may report any number of names, and each is a row in the ledger
OTHER_MODELS = "other"  # stands for all beyond these
_LONGEST_NAME = 200  # characters


class UsageSource(StrEnum):
    """Source of a turn's usage."""

    RESULT = "result"  # the agent's final report: observed
    SESSION_FILES = "session_files"  # the agent's records on its host, and the answers it printed: observed
    STREAM = "stream"  # summed from events: an estimate, with output unknown or partial
    NONE = "none"  # no usage was seen

    @property
    def observed(self) -> bool:
        """Return True for billed numbers; estimates are never added to them."""
        return self in (UsageSource.RESULT, UsageSource.SESSION_FILES)


@dataclass(
    slots=True, unsafe_hash=True
)  # not frozen, like the events: building a frozen instance costs three times as much
class Tokens:
    """Billed tokens of the four disjoint kinds. Treat as immutable."""

    input_tokens: int = 0  # at full price: neither read from the cache nor written to it
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
        """Return all billed tokens, including cached ones."""
        return self.prompt + self.output_tokens

    @property
    def prompt(self) -> int:
        """Return all prompt tokens, including cached ones."""
        return self.input_tokens + self.cache_read_input_tokens + self.cache_creation_input_tokens


NO_TOKENS = Tokens()


@dataclass(slots=True, unsafe_hash=True)
class ModelUsage:
    """Billed usage of one model. Treat as immutable."""

    tokens: Tokens = NO_TOKENS
    cost_usd: float | None = None  # None: unknown price

    def __add__(self, other: ModelUsage) -> ModelUsage:
        priced = self.cost_usd is not None and other.cost_usd is not None
        cost = (self.cost_usd or 0.0) + (other.cost_usd or 0.0) if priced else None
        return replace(self, tokens=self.tokens + other.tokens, cost_usd=cost)


@dataclass(frozen=True, slots=True)
class Usage:
    """Billed usage of a turn, by model."""

    by_model: Mapping[str, ModelUsage]
    source: UsageSource
    complete: bool = True  # False: billed tokens may be missing, such as those of a message in flight at the end

    @property
    def tokens(self) -> Tokens:
        """Return the sum over all models."""
        return sum((used.tokens for used in self.by_model.values()), NO_TOKENS)

    @property
    def cost_usd(self) -> float | None:
        """Return the sum over all models in US dollars; None if no usage was seen or a model has no price."""
        if self.source is UsageSource.NONE:
            return None
        return sum_costs(used.cost_usd for used in self.by_model.values())


def limited(usage: Usage) -> Usage:
    """Return the usage with all models beyond `MAX_MODELS`, and those with an endless name, summed as one."""
    if len(usage.by_model) <= MAX_MODELS and all(len(model) <= _LONGEST_NAME for model in usage.by_model):
        return usage
    names = (limited_name(model, number) for number, model in enumerate(usage.by_model))
    return replace(usage, by_model=sum_by_model(zip(names, usage.by_model.values(), strict=True)))


def limited_name(model: str, number: int) -> str:
    """Return a model's name if it is among the first ones and not endless; else the common one."""
    return model if number < MAX_MODELS and len(model) <= _LONGEST_NAME else OTHER_MODELS


NO_USAGE = Usage(by_model={}, source=UsageSource.NONE)


def combine(usages: Iterable[Usage]) -> Usage:
    """Return the usage of several attempts: the sum of observed numbers, or of estimates if there are none."""
    attempts = list(usages)
    known = [usage for usage in attempts if usage.source is not UsageSource.NONE]
    observed = [usage for usage in known if usage.source.observed]
    chosen = observed or known
    if not chosen:
        return replace(NO_USAGE, complete=all(usage.complete for usage in attempts))
    by_model = sum_by_model(pair for usage in chosen for pair in usage.by_model.items())
    # The sum has the weaker of two sources: session files replace a missing report.
    source = max((usage.source for usage in chosen), key=list(UsageSource).index)
    complete = all(usage.complete for usage in attempts) and len(observed) in (0, len(known))
    return Usage(by_model, source, complete)


def remainder(usage: Usage, booked: Iterable[Usage]) -> Usage:
    """Return the part of this usage that the others do not account for."""
    known = sum_by_model(pair for other in booked for pair in other.by_model.items())
    by_model = {model: _beyond(used, known.get(model)) for model, used in usage.by_model.items()}
    rest = {model: used for model, used in by_model.items() if used.tokens != NO_TOKENS}
    return replace(usage, by_model=rest)


def _beyond(used: ModelUsage, known: ModelUsage | None) -> ModelUsage:
    if known is None:
        return used
    left = used.tokens - known.tokens
    tokens = Tokens(
        max(0, left.input_tokens),
        max(0, left.output_tokens),
        max(0, left.cache_read_input_tokens),
        max(0, left.cache_creation_input_tokens),
    )
    priced = used.cost_usd is not None and known.cost_usd is not None
    return ModelUsage(tokens, max(0.0, (used.cost_usd or 0.0) - (known.cost_usd or 0.0)) if priced else None)


def sum_by_model(usages: Iterable[tuple[str, ModelUsage]]) -> dict[str, ModelUsage]:
    """Return the sum of these usages for each model."""
    by_model: dict[str, ModelUsage] = {}
    for model, used in usages:
        by_model[model] = by_model[model] + used if model in by_model else used
    return by_model


def sum_costs(costs: Iterable[float | None]) -> float | None:
    """Return the sum of costs in US dollars; None if any is unknown."""
    total = 0.0
    for cost in costs:
        if cost is None:
            return None
        total += cost
    return total
