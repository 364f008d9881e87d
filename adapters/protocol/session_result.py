"""The result of a session of turns: one JSON document."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from adapters.errors import TurnError
from adapters.protocol.result import ErrorInfo, TurnResult, UsageTotals, totals
from adapters.usage import ModelUsage, Usage, UsageSource, combine


class SessionStatus(StrEnum):
    """Outcome of a session of turns."""

    DONE = "done"
    GAVE_UP = "gave_up"  # a limit was reached
    FAILED = "failed"  # a turn failed in a way that another turn would not fix
    CANCELLED = "cancelled"


TESTS_PASSED = "tests_passed"
OUTPUT_DONE = "output_done"
MAX_TURNS = "max_turns"
MAX_SESSIONS = "max_sessions"


class Check(BaseModel):
    """One run of a test command, after a turn."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    command: str
    exit: int | None  # None: timed out; 128 + n after signal n
    duration_ms: int
    tail: str = ""  # end of its output, at most 4 KiB

    @property
    def passed(self) -> bool:
        """True if it succeeded."""
        return self.exit == 0


class Spent(BaseModel):
    """Usage of all turns so far."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    usage: UsageTotals = UsageTotals()
    usage_source: UsageSource = UsageSource.NONE
    usage_complete: bool = True
    cost_usd: float | None = None  # None: unknown for at least one model
    seen_tokens: int = 0  # including estimates; for the limits
    seen_cost_usd: float = 0.0  # as far as prices are known

    def and_of(self, turn: TurnResult) -> Spent:
        """Return it with another turn's usage added."""
        theirs = _usage(turn.usage, turn.usage_source, turn.usage_complete)
        usage = combine((_usage(self.usage, self.usage_source, self.usage_complete), theirs))
        return Spent(
            usage=totals(usage),
            usage_source=usage.source,
            usage_complete=usage.complete,
            cost_usd=usage.cost_usd,
            seen_tokens=self.seen_tokens + theirs.tokens.total,
            seen_cost_usd=self.seen_cost_usd + sum(used.cost_usd or 0.0 for used in theirs.by_model.values()),
        )


class SessionResult(BaseModel):
    """The outcome of a session of turns. Its repr is short and contains nothing that the agent wrote."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    run_id: str
    status: SessionStatus
    reason: str = Field(
        description="tests_passed, output_done, max_turns, max_sessions, or the kind of the error that ended it"
    )
    error: ErrorInfo | None = None  # of the last turn, or of the request
    turns: tuple[str, ...] = ()  # their ids
    sessions: int = 0  # number of agent sessions started
    session_id: str | None = None  # the last one
    host: str | None = None  # of the last turn
    workspace: str | None = None  # path on that host if made for all turns, and kept
    text: str = ""  # of the last turn, like the structured output
    structured_output: JsonValue = None
    checks: tuple[Check, ...] = ()  # after the last turn; empty: none ran
    usage: UsageTotals = UsageTotals()  # of all turns, like the next three
    usage_source: UsageSource = UsageSource.NONE
    usage_complete: bool = True
    cost_usd: float | None = None

    def __repr__(self) -> str:
        cost = "unpriced" if self.cost_usd is None else f"${self.cost_usd:.4f}"
        return f"<{self.status} {self.reason} {len(self.turns)} turns {cost}>"

    __str__ = __repr__

    @classmethod
    def refused(cls, run_id: str, error: TurnError) -> SessionResult:
        """Return the result of a request that cannot run."""
        return cls(run_id=run_id, status=SessionStatus.FAILED, reason=error.kind, error=ErrorInfo.of(error))


def _usage(counts: UsageTotals, source: UsageSource, complete: bool) -> Usage:
    by_model = {model: ModelUsage(bill.tokens, bill.cost_usd) for model, bill in counts.by_model.items()}
    return Usage(by_model, source, complete)
