"""The limits of one attempt, as a function of time and observed progress."""

from __future__ import annotations

from dataclasses import dataclass

from adapters import errors
from adapters.errors import TurnError
from adapters.protocol.request import TurnRequest
from ops.settings import AgentSettings

_DEADLINE_SHARE = 0.1  # largest share of an attempt's time for its soft stop
_TOO_LATE = "Deadline exceeded"


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment on two clocks, both in seconds."""

    monotonic: float  # which nobody can set: for how long something takes
    ledger: float  # Unix time: for what was promised, and for what began under another worker


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits in seconds, tokens and US dollars; None: no limit."""

    turn_timeout_s: float
    read_timeout_s: float
    stall_timeout_s: float | None
    deadline_at: float | None  # Unix time on the ledger's clock
    max_total_tokens: int | None
    max_cost_usd: float | None = None  # for agents that do not enforce it themselves
    soft_stop_s: float = 0.0  # time for the agent to stop by itself; 0: it is not asked to

    @classmethod
    def of(
        cls, request: TurnRequest, defaults: AgentSettings, *, caps_cost_itself: bool, ends_by_itself: bool = False
    ) -> Limits:
        """Return a request's limits, completed by the operator's defaults."""
        stall_ms = _either(request.stall_timeout_ms, defaults.stall_timeout_ms)
        return cls(
            turn_timeout_s=_either(request.turn_timeout_ms, defaults.turn_timeout_ms) / 1000,
            read_timeout_s=_either(request.read_timeout_ms, defaults.read_timeout_ms) / 1000,
            stall_timeout_s=stall_ms / 1000 if stall_ms > 0 else None,
            deadline_at=request.deadline_at,
            max_total_tokens=request.max_total_tokens,
            max_cost_usd=None if caps_cost_itself else request.max_cost_usd,
            soft_stop_s=defaults.soft_stop_ms / 1000 if ends_by_itself else 0.0,
        )


@dataclass(frozen=True, slots=True)
class SoftStop:
    """The reason to ask an agent to stop by itself."""

    error: TurnError
    reason: str  # worded for the agent


def _either(given: int | None, default: int) -> int:
    return default if given is None else given


class LimitWatch:
    """Checks one attempt against its limits, for as long as one worker holds it.

    All but the deadline go by the monotonic clock.
    """

    def __init__(self, limits: Limits, started_at: float, now: Moment) -> None:
        """`started_at` is when the attempt started, on the ledger's clock; a new worker inherits it."""
        self._limits = limits
        self._started_at = started_at
        self._ends_at = now.monotonic - max(0.0, now.ledger - started_at) + limits.turn_timeout_s
        self._alive_at = now.monotonic  # last sign of life
        self._heard = False
        self._tokens = 0
        self._cost_usd = 0.0
        self._overspent_at: float | None = None  # when the agent was asked to stop for overspending

    def attached(self, now: Moment) -> None:
        """Count silence from now: the host has started the agent, or found it running."""
        self._alive_at = now.monotonic

    def woken(self, now: Moment) -> None:
        """Count silence from now: this worker was frozen, and the agent's output is unread or no longer ours."""
        self._alive_at = now.monotonic

    def alive(self, now: Moment) -> None:
        """Record a sign of life from the agent."""
        self._heard = True
        self._alive_at = now.monotonic

    def silence_s(self, now: Moment) -> float:
        """Return the seconds since the last sign of life."""
        return max(0.0, now.monotonic - self._alive_at)

    def left_s(self, now: Moment) -> float:
        """Return the seconds until the attempt's time is up."""
        left_s = self._ends_at - now.monotonic
        deadline_at = self._limits.deadline_at
        return left_s if deadline_at is None else min(left_s, deadline_at - now.ledger)

    def spent(self, tokens: int, cost_usd: float) -> None:
        """Record the agent's billed tokens so far, and their cost as far as prices are known."""
        self._tokens = tokens
        self._cost_usd = cost_usd

    def ending(self, now: Moment) -> SoftStop | None:
        """Return why to ask the agent to stop by itself before it is terminated, if there is a reason."""
        limits = self._limits
        if not limits.soft_stop_s:
            return None
        if limits.deadline_at is not None:
            share = (limits.deadline_at - self._started_at) * _DEADLINE_SHARE
            if now.ledger >= limits.deadline_at - min(limits.soft_stop_s, share):
                return SoftStop(errors.DeadlineExceeded(), _TOO_LATE)
        overspent = self._overspent()
        if overspent is not None and self._overspent_at is None:
            self._overspent_at = now.monotonic
        return overspent

    def forbids(self, now: Moment) -> str | None:
        """Return why no more tools may run, worded for the agent; applies even without a soft stop."""
        limits = self._limits
        if limits.deadline_at is not None and now.ledger >= limits.deadline_at:
            return _TOO_LATE
        overspent = self._overspent()
        return None if overspent is None else overspent.reason

    def exceeded(self, now: Moment) -> TurnError | None:
        """Return the limit reached for which the agent must be terminated, if any.

        An agent that can stop by itself gets `soft_stop_s` for it once `ending` has asked.
        """
        limits = self._limits
        if limits.deadline_at is not None and now.ledger >= limits.deadline_at:
            return errors.DeadlineExceeded()
        if now.monotonic >= self._ends_at:
            return errors.TurnTimeout(
                f"the turn took longer than turn_timeout_ms = {limits.turn_timeout_s * 1000:.0f}"
            )
        overspent = self._overspent()
        if overspent is not None and self._time_is_up(now):
            return overspent.error
        return self._silent(now)

    def fell_silent(self) -> TurnError:
        """Return the error of an agent that has been silent for too long, before or after its first output."""
        if not self._heard:
            return errors.ReadTimeout(
                f"the agent printed nothing within read_timeout_ms = {self._limits.read_timeout_s * 1000:.0f}"
            )
        stall_ms = (self._limits.stall_timeout_s or 0.0) * 1000
        return errors.TurnStalled(f"the agent was silent for longer than stall_timeout_ms = {stall_ms:.0f}")

    def _overspent(self) -> SoftStop | None:
        limits = self._limits
        if limits.max_total_tokens is not None and self._tokens >= limits.max_total_tokens:
            used = f"the turn used {self._tokens:,} tokens; max_total_tokens is {limits.max_total_tokens:,}"
            return SoftStop(errors.BudgetExceeded(used), "Token budget exhausted")
        if limits.max_cost_usd is not None and self._cost_usd >= limits.max_cost_usd:
            cost = f"the turn cost ${self._cost_usd:.4f}; max_cost_usd is {limits.max_cost_usd:g}"
            return SoftStop(errors.BudgetExceeded(cost), "Cost budget exhausted")
        return None

    def _time_is_up(self, now: Moment) -> bool:
        if not self._limits.soft_stop_s:
            return True
        return self._overspent_at is not None and now.monotonic >= self._overspent_at + self._limits.soft_stop_s

    def _silent(self, now: Moment) -> TurnError | None:
        limit = self._limits.stall_timeout_s if self._heard else self._limits.read_timeout_s
        return self.fell_silent() if limit is not None and now.monotonic - self._alive_at >= limit else None
