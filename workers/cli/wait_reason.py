"""The reason why a turn has not started yet."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from adapters.errors import meaning
from ops.ledger import Ledger, State
from workers.events.model import AgentChosen

PATIENCE_S = 2.0  # a turn that starts at once needs no explanation


def with_notice(
    events: Iterable[dict[str, Any]], notice: Callable[[], None], patience_s: float = PATIENCE_S
) -> Iterator[dict[str, Any]]:
    """Yield events as they come. If none shows a start in `patience_s`, call `notice` once on another thread."""
    timer = threading.Timer(patience_s, notice)
    timer.daemon = True
    timer.start()
    try:
        for event in events:
            if event["event"] != AgentChosen.name:  # it names the agent, but does not start it
                timer.cancel()
            yield event
    finally:
        timer.cancel()


def reason_to_wait(ledger: Ledger, turn_id: str, now: float) -> str | None:
    """Return one line on what a turn waits for; None if it is running or finished."""
    row = ledger.reports.turn(turn_id)
    if row.due_at is not None and row.due_at > now:
        at = time.strftime("%m-%d %H:%M:%S", time.localtime(row.due_at))
        if row.wait_reason is None:
            return f"starts at {at}"
        known = meaning(row.wait_reason)
        explained = f": {known}" if known else ""
        return f"waiting ({row.wait_reason}{explained}); next check at {at}"
    if row.state not in (State.QUEUED, State.WAITING):
        return None
    backlog = ledger.reports.backlog(now)
    where = ", ".join(f"{count} on {host}" for host, count in sorted(backlog.open_attempts.items()))
    others = max(0, backlog.ready - 1)
    return (
        f"waiting for a free slot on an eligible host; running agents: {where or 'none'}; "
        f"other turns in the queue: {others}. See: runturn top"
    )
