"""All events of one turn, in order and without gaps: missed ones from the ledger, new ones from the broker."""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Iterator
from typing import Any

import orjson

from ops.ledger import Ledger
from workers.events.bus import Batch, Subscription

_POLL_S = 1.0  # how long the broker may be silent before the ledger is queried


def watch(ledger: Ledger, broker_url: str, turn_id: str, after: int = 0) -> Generator[dict[str, Any], None, None]:
    """Yield events from number `after` + 1 until the turn is settled and its last event was yielded.

    A batch from the broker that does not continue the sequence reveals a gap (we subscribed late, or the broker
    was down); the ledger, written a moment later, closes it.
    """
    with Subscription(broker_url, turn_id) as subscription:
        yield from follow(ledger, subscription, turn_id, after)


def follow(
    ledger: Ledger, subscription: Subscription, turn_id: str, after: int, within_s: float = math.inf
) -> Generator[dict[str, Any], None, None]:
    """Yield the same over a subscription; also stop after `within_s` seconds."""
    seen, ends = after, time.monotonic() + within_s
    while time.monotonic() < ends:
        for event in stored(ledger, turn_id, seen):
            seen = event["seq"]
            yield event
        if ledger.reports.result(turn_id) is not None:
            yield from stored(ledger, turn_id, seen)
            return
        while live := list(subscription.batches(max(0.0, min(_POLL_S, ends - time.monotonic())))):
            for event in following(live, seen):
                seen = event["seq"]
                yield event
            if live[-1].first_seq > seen + 1 or is_last(live[-1]):
                break


def stored(ledger: Ledger, turn_id: str, after: int) -> Iterator[dict[str, Any]]:
    """Return the events that the ledger has after a number."""
    return (orjson.loads(line) for _, line in ledger.events.after(turn_id, after))


def following(batches: list[Batch], seen: int) -> Iterator[dict[str, Any]]:
    """Yield the events of these batches that come next, up to a gap."""
    for batch in batches:
        for event in batch.events:
            if event["seq"] == seen + 1:
                seen += 1
                yield event


def is_last(batch: Batch) -> bool:
    """Return whether the batch contains the turn's last event."""
    return bool(batch.events) and batch.events[-1]["event"] == "turn_settled"
