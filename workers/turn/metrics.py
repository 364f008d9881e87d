"""Metrics of one attempt."""

from __future__ import annotations

from collections.abc import Sequence

from adapters.events import ApiRetry, Event, SessionStarted, ToolFinished
from ops.ledger import Attempt, Claim
from remote.spool import Exit
from workers.context import WorkerContext

_COUNTED = frozenset({ToolFinished, SessionStarted, ApiRetry})  # a look-up is cheaper than the match below


class AttemptMetrics:
    """Counts events of one attempt, except those that a killed worker may already have counted.

    So for turns taken over, events that no worker followed are missing. Cost and tokens are counted elsewhere.
    """

    def __init__(self, context: WorkerContext, claim: Claim, attempt: Attempt) -> None:
        self.launcher = "none"  # of its host
        self._context = context
        self._metrics = context.metrics
        self._claim = claim
        self._attempt = attempt
        self._agent = claim.request.agent
        self._taken_over = claim.open is not None
        self._heard = self._taken_over
        self._links_lost = 0

    def attached(self) -> None:
        """Count a reattachment, if the turn was taken over."""
        if self._taken_over:
            self._metrics.reattached("worker" if self._attempt.unreachable_since is None else "link")

    def links_lost(self, count: int) -> None:
        """Count reattachments, given their total so far."""
        for _ in range(count - self._links_lost):
            self._metrics.reattached("link")
        self._links_lost = count

    def saw(self, events: Sequence[Event], *, replayed: bool) -> None:
        """Count events that the agent printed; `replayed`: before we attached."""
        if not self._heard and events:
            self._heard = True
            seconds = self._context.clock() - self._attempt.started_at
            self._metrics.first_event(self._claim.turn_id, self.launcher, max(0.0, seconds))
        if replayed and self._taken_over:
            return
        for event in events:
            if type(event) not in _COUNTED:
                continue
            match event:
                case ToolFinished():
                    took_s = None if event.duration_ms is None else event.duration_ms / 1000
                    failed = event.error is not None
                    self._metrics.tool_ended(self._agent, event.tool, failed=failed, seconds=took_s)
                case SessionStarted() if event.agent_version is not None:
                    self._metrics.agent_seen(self._agent, self._attempt.host, event.agent_version)
                case ApiRetry():
                    self._metrics.api_retried(self._agent, event.status)

    def ended(self, end: Exit) -> None:
        """Count the agent as orphaned if its lease ended it."""
        if end.reason == "lease":
            self._metrics.orphan_ended()
