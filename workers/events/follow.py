"""All events of one turn, in order and without gaps: missed ones from the ledger, new ones from the broker.

A batch from the broker that does not continue the sequence reveals a gap (we subscribed late, or the broker was
down); the ledger, written a moment later, closes it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Sequence
from typing import Any

import orjson

from ops.ledger import Ledger
from workers.events.bus import Batch, Subscription

POLL_S = 1.0  # how long the broker may be silent before the ledger is queried


class Reader:
    """One reader's place in a turn's events. Read `stored` ones first, then `live` ones while it does not lag."""

    def __init__(self, ledger: Ledger, turn_id: str, after: int) -> None:
        self._ledger = ledger
        self._turn_id = turn_id
        self._seen = after  # number of the last event read

    def stored(self) -> list[dict[str, Any]]:
        """Return the next events, as far as the ledger has them."""
        events = [orjson.loads(line) for _, line in self._ledger.events.after(self._turn_id, self._seen)]
        if events:
            self._seen = events[-1]["seq"]
        return events

    def live(self, batches: Sequence[Batch]) -> list[dict[str, Any]]:
        """Return the next events among these batches, up to a gap."""
        events = []
        for event in (event for batch in batches for event in batch.events):
            if event["seq"] == self._seen + 1:
                self._seen += 1
                events.append(event)
        return events

    def lags(self, batches: Sequence[Batch]) -> bool:
        """Return whether to read stored events after these batches: some were missed, or the turn has ended."""
        return batches[-1].first_seq > self._seen + 1 or is_last(batches[-1])


def watch(ledger: Ledger, broker_url: str, turn_id: str, after: int = 0) -> Generator[dict[str, Any], None, None]:
    """Yield events from number `after` + 1 until the turn is settled and its last event was yielded."""
    if ledger.reports.result(turn_id) is not None:
        yield from Reader(ledger, turn_id, after).stored()  # all of them: no broker is needed
        return
    with Subscription(broker_url, turn_id) as subscription:
        yield from follow(ledger, subscription, turn_id, after)


def follow(
    ledger: Ledger, subscription: Subscription, turn_id: str, after: int, within_s: float = math.inf
) -> Generator[dict[str, Any], None, None]:
    """Yield the same over a subscription; also stop after `within_s` seconds."""
    reader, ends = Reader(ledger, turn_id, after), time.monotonic() + within_s
    while time.monotonic() < ends:
        settled = ledger.reports.result(turn_id) is not None  # before reading: the last events are then stored
        yield from reader.stored()
        if settled:
            return
        while live := subscription.batches(max(0.0, min(POLL_S, ends - time.monotonic()))):
            yield from reader.live(live)
            if reader.lags(live):
                break


def is_last(batch: Batch) -> bool:
    """Return whether the batch contains the turn's last event."""
    return bool(batch.events) and batch.events[-1]["event"] == "turn_settled"
