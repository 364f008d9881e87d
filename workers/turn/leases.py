"""Lease times: when a claim is certain, and when an unreachable host can no longer be running a turn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from ops.ledger import Attempt
from ops.settings import AgentSettings

OWNER_TTL_S = 15.0  # a worker that has not renewed a claim for this long has lost it
ANSWER_S = 60.0  # for a host's answer; heartbeats in transit for longer renew no lease
_RUNGS = 4  # steps that terminate an agent: INT, TERM, KILL, and the sweep of what it left behind
_MARGIN_S = 30.0  # for a host under load
_STUCK_S = 90.0  # a supervisor or watcher that was stopped is found and replaced within this, see watcher.sh
_GUARD_TICKS = 4  # of the watcher's, until its guard has replaced it
_LONGEST_TICK_S = 10.0
_OVERDUE_S = 60.0  # after the lease, until a guard replaces a watcher that does nothing, see watcher.sh
_BEATS = 12  # per lease


@dataclass(frozen=True, slots=True)
class AgentLease:
    """The terms an agent was started with: when its host must terminate it unasked, and how gently."""

    lease_s: int
    stop_grace_s: float

    @classmethod
    def by(cls, agent: AgentSettings) -> Self:
        """Return the lease of agents that a worker with these settings starts. Hosts count whole seconds."""
        return cls(round(agent.lease_ms / 1000), agent.stop_grace_ms / 1000)

    @classmethod
    def on(cls, attempt: Attempt, agent: AgentSettings) -> Self:
        """Return the lease of an attempt's agent, whichever worker began it; `agent` is this worker's settings."""
        own = cls.by(agent)
        lease_s = own.lease_s if attempt.lease_s is None else attempt.lease_s
        # If the attempt was begun but not started, this worker starts the agent, with its own grace period.
        return cls(lease_s, max(own.stop_grace_s, attempt.stop_grace_s or 0.0))

    @property
    def beat_s(self) -> float:
        """Seconds between heartbeats."""
        return self.lease_s / _BEATS

    @property
    def fence_s(self) -> float:
        """Seconds after which an unreachable host has terminated the agent by itself."""
        guard_s = _OVERDUE_S + _GUARD_TICKS * min(_LONGEST_TICK_S, self.lease_s / 6)
        return ANSWER_S + self.lease_s + guard_s + 2 * _RUNGS * self.stop_grace_s + _MARGIN_S

    @property
    def stop_s(self) -> float:
        """Seconds after which a host that can be reached has terminated the agent on request."""
        return _RUNGS * self.stop_grace_s + _STUCK_S + _MARGIN_S
