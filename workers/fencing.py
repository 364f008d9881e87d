"""When nothing of a turn can be running any more on a host that is out of reach, and whose claim is certain."""

from __future__ import annotations

from ops.settings import AgentSettings

OWNER_TTL_S = 15.0  # a worker that has not renewed its claims for this long has lost them
ANSWER_S = 60.0  # for a host's answer; heartbeats that were under way for longer renew no lease
_RUNGS = 4  # of the ladder that ends an agent: INT, TERM, KILL, and the sweep of what it left behind
_MARGIN_S = 30.0  # for a host under load


def fence_s(agent: AgentSettings) -> float:
    """Seconds after which a host that is out of reach has ended the agent by itself."""
    return ANSWER_S + agent.lease_ms / 1000 + _RUNGS * agent.stop_grace_ms / 1000 + _MARGIN_S
