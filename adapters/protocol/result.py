"""The result of a turn, as producers get it: one JSON document."""

from __future__ import annotations

from dataclasses import asdict, fields
from enum import StrEnum
from typing import Self

from pydantic import BaseModel, ConfigDict, JsonValue

from adapters.errors import TurnError
from adapters.protocol.plan import Plan
from adapters.usage import Tokens, Usage, UsageSource


class Status(StrEnum):
    """Outcome of a turn."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class ErrorInfo(BaseModel):
    """The error that kept a turn from completing."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: str
    message: str
    retryable: bool

    @classmethod
    def of(cls, error: TurnError) -> Self:
        """Return the error as a value."""
        return cls(kind=error.kind, message=error.message, retryable=error.retryable)


class TokenCounts(BaseModel):
    """Billed tokens of the four disjoint kinds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_input_tokens: int = 0
    cache_creation_input_tokens: int = 0

    @property
    def tokens(self) -> Tokens:
        """The same, to calculate with."""
        return Tokens(**{field.name: getattr(self, field.name) for field in fields(Tokens)})


class ModelBill(TokenCounts):
    """One model's share of the bill."""

    cost_usd: float | None = None  # None: its price is unknown


class UsageTotals(TokenCounts):
    """The turn's bill, in total and by model."""

    by_model: dict[str, ModelBill] = {}


class CollectedFile(BaseModel):
    """A file of the workspace: its text, or its bytes in base64 if they are not text."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    text: str | None = None
    base64: str | None = None  # both are null: over the size limit, or unreadable
    size: int | None = None  # bytes in the workspace; null: unreadable
    truncated: bool = False  # cut off at the size limit


class Collected(BaseModel):
    """Requested contents of a workspace that a turn brought."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    patch: str | None = None  # blank: no changes
    files: dict[str, CollectedFile] = {}  # by path in the workspace
    truncated: bool = False  # there were more than collect.max_bytes
    problem: str | None = None  # why it is incomplete


class TurnResult(BaseModel):
    """The outcome of a turn. Its repr is short and contains nothing that the agent wrote."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    turn_id: str
    session_id: str | None = None
    status: Status
    error: ErrorInfo | None = None
    text: str = ""
    structured_output: JsonValue = None
    plan: Plan | None = None  # only of a plan turn
    usage: UsageTotals = UsageTotals()
    usage_source: UsageSource = UsageSource.NONE
    usage_complete: bool = True  # False: a message was in flight when the agent ended; its usage is missing
    cost_usd: float | None = None  # None: unknown for at least one model
    not_understood: tuple[str, ...] = ()  # parts of the agent's final report that are missing or unrecognized
    num_turns: int | None = None  # agentic steps of the last attempt
    duration_ms: int | None = None  # wall-clock time of the last attempt
    duration_api_ms: int | None = None
    cpu_ms: int | None = None  # CPU time of the last attempt's agent and of its tools, where they ended before it
    peak_memory_bytes: int | None = None  # most that was seen in the last attempt; looked at every few seconds
    host: str | None = None
    agent_version: str | None = None  # of the last attempt: as reported by the agent, else as found on its host
    attempts: int = 0
    exit_code: int | None = None
    denied_tools: tuple[str, ...] = ()  # tools that the permission mode denied
    workspace: str | None = None  # path on the host if made for this or an earlier turn, and kept
    collected: Collected | None = None

    def __repr__(self) -> str:
        words: list[str] = [self.status]
        if self.error:
            words.append(self.error.kind)
        words.append(f"{self.usage.tokens.total} tokens")
        words.append("unpriced" if self.cost_usd is None else f"${self.cost_usd:.4f}")
        return f"<{' '.join(words)}>"

    __str__ = __repr__


def totals(usage: Usage) -> UsageTotals:
    """Return usage in the form of a result."""
    bills = {
        model: ModelBill(**asdict(used.tokens), cost_usd=used.cost_usd) for model, used in usage.by_model.items()
    }
    return UsageTotals(**asdict(usage.tokens), by_model=bills)
