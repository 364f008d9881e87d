"""Reads one attempt's output: into the turn's state, its limits, its metrics and its events.

An agent may print anything, as fast as it can. Other turns share the event loop, so it is read a few lines at a
time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from adapters.contract import Adapter
from adapters.events import ApiRetry
from adapters.turn_state import TurnState, fold
from ops.redaction import Redactor
from remote.errors import LineTooLong
from remote.follower import Follower
from workers.context import WorkerContext
from workers.events.limit import EventLimit
from workers.events.pace import Pace
from workers.events.recorder import EventRecorder
from workers.limits import LimitWatch
from workers.live.conversation import LiveTurn
from workers.turn.metrics import AttemptMetrics

_LINES_AT_ONCE = 256  # which take about a millisecond


class AgentOutput:
    """The output of one attempt."""

    def __init__(
        self,
        context: WorkerContext,
        adapter: Adapter,
        state: TurnState,
        recorder: EventRecorder,
        watch: LimitWatch,
        metrics: AttemptMetrics,
        redactor: Redactor,
        live: LiveTurn | None,
    ) -> None:
        self._context = context
        self._price = adapter.price
        self._parser = adapter.parser()
        self._state = state
        self._recorder = recorder
        self._watch = watch
        self._metrics = metrics
        self._redactor = redactor
        self._live = live
        self._limit = EventLimit()
        self._pace = Pace(context.monotonic)

    @property
    def dropped(self) -> int:
        """Number of events that were not recorded."""
        return self._limit.dropped

    async def read(self, follower: Follower) -> None:
        """Read until the agent has exited or the follower is detached. Raises HostError."""
        try:
            async for batch in follower:
                self._metrics.links_lost(follower.reattachments)
                for lines in _parts(batch.lines):
                    if follower.detached and follower.exit is None:
                        return  # the next worker reads them
                    began = self._context.monotonic()
                    recorded = self._take(lines, replayed=batch.replayed)
                    busy_s = self._context.monotonic() - began
                    # A worker that takes over is not to wait for events that the ledger may have already.
                    delay_s = self._pace.delay_s(0 if batch.replayed else recorded, busy_s)
                    await asyncio.sleep(0.0 if follower.exit else delay_s)
        except LineTooLong:
            await follower.cancel()  # its output cannot be read any further
            self._recorder.tell(self._limit.summary())
            raise
        if follower.exit is not None:
            self._recorder.tell(self._limit.summary())

    def _take(self, printed: Sequence[bytes], *, replayed: bool) -> int:
        """Read lines; return the number of events recorded."""
        lines = self._redactor.lines([line for line in printed if line])
        # It is unknown when replayed lines were printed.
        at = None if replayed else self._context.monotonic()
        happened = fold(self._parser, self._state, lines, at)
        self._metrics.saw(happened, replayed=replayed)
        if any(type(event) is not ApiRetry for event in happened):
            self._watch.alive(self._context.moment())
        self._watch.spent(self._state.seen_tokens.total, self._known_cost_usd())
        recorded = self._limit.within(happened)
        self._recorder.tell(recorded)
        if self._live is not None:
            # Unredacted, and last: its gates check the limits, which must already include these lines.
            self._live.heard(printed)
        return len(recorded)

    def _known_cost_usd(self) -> float:
        return sum(self._price(model, tokens) or 0.0 for model, tokens in self._state.seen.items())


def _parts(lines: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    for start in range(0, len(lines), _LINES_AT_ONCE):
        yield lines[start : start + _LINES_AT_ONCE]
