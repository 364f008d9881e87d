"""When nothing of a turn can be running any more on a host that is out of reach, and whose claim is certain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from ops.ledger import Attempt
from ops.settings import AgentSettings

OWNER_TTL_S = 15.0  # a worker that has not renewed its claims for this long has lost them
ANSWER_S = 60.0  # for a host's answer; heartbeats that were under way for longer renew no lease
_RUNGS = 4  # of the ladder that ends an agent: INT, TERM, KILL, and the sweep of what it left behind
_MARGIN_S = 30.0  # for a host under load
_BEATS = 12  # a lease


@dataclass(frozen=True, slots=True)
class AgentLease:
    """What a host was told when it started an agent: when it has to end it by itself, and how gently."""

    lease_s: int
    stop_grace_s: float

    @classmethod
    def by(cls, agent: AgentSettings) -> Self:
        """On the agents that a worker with these settings starts. Hosts count whole seconds."""
        return cls(round(agent.lease_ms / 1000), agent.stop_grace_ms / 1000)

    @classmethod
    def on(cls, attempt: Attempt, agent: AgentSettings) -> Self:
        """On the agent of an attempt, whichever worker began it; `agent` is what this worker has for those."""
        own = cls.by(agent)
        lease_s = own.lease_s if attempt.lease_s is None else attempt.lease_s
        # Where the attempt was begun and not started, this worker starts the agent, with its own ladder.
        return cls(lease_s, max(own.stop_grace_s, attempt.stop_grace_s or 0.0))

    @property
    def beat_s(self) -> float:
        """Seconds between two heartbeats."""
        return self.lease_s / _BEATS

    @property
    def fence_s(self) -> float:
        """Seconds after which a host that is out of reach has ended the agent by itself."""
        return ANSWER_S + self.lease_s + _RUNGS * self.stop_grace_s + _MARGIN_S
