"""What a turn waits for that does not run yet, for whoever sits in front of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from adapters.errors import meaning
from ops.ledger import Ledger, State
from workers.events.model import AgentChosen

PATIENCE_S = 2.0  # a turn that starts at once has no need to be explained


def with_notice(
    events: Iterable[dict[str, Any]], notice: Callable[[], None], patience_s: float = PATIENCE_S
) -> Iterator[dict[str, Any]]:
    """Events as they come; if none tells of a start within a while, `notice` is called once, on another thread."""
    timer = threading.Timer(patience_s, notice)
    timer.daemon = True
    timer.start()
    try:
        for event in events:
            if event["event"] != AgentChosen.name:  # it says who is to run it, not that anybody does
                timer.cancel()
            yield event
    finally:
        timer.cancel()


def reason_to_wait(ledger: Ledger, turn_id: str, now: float) -> str | None:
    """One line on what has to happen before a turn starts; None: nothing, it runs or is over."""
    row = ledger.reports.turn(turn_id)
    if row.due_at is not None and row.due_at > now:
        at = time.strftime("%m-%d %H:%M:%S", time.localtime(row.due_at))
        if row.wait_reason is None:
            return f"it is to start at {at}"
        known = meaning(row.wait_reason)
        explained = f" ({known})" if known else ""
        return f"it waits, {row.wait_reason}{explained}, and is looked at again at {at}"
    if row.state not in (State.QUEUED, State.WAITING):
        return None
    backlog = ledger.reports.backlog(now)
    where = ", ".join(f"{count} on {host}" for host, count in sorted(backlog.open_attempts.items()))
    others = max(0, backlog.ready - 1)
    return (
        f"it waits for a free slot on a host that it may run on: agents at work: {where or 'none'}; "
        f"others in the queue: {others}. See: runturn top"
    )
