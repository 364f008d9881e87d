"""Recovery of messages that earlier versions left under kombu's own keys, which all applications share."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import structlog
from kombu.utils.encoding import bytes_to_str
from kombu.utils.json import dumps, loads

from workers.brokers.redis_scripts import RETURN

_UNACKED: Final = "unacked"
_INDEX: Final = "unacked_index"
_AT_ONCE = 500  # messages read with one command

log = structlog.get_logger(__name__)


def recover_shared_keys(client: Any, queues: Collection[str], silent_since: float) -> None:
    """Return messages of these queues that have had no holder since then (Unix time) to their queues.

    Workers of earlier versions refresh what they hold. Messages of other applications are left alone.
    """
    abandoned = client.zrangebyscore(_INDEX, 0, silent_since)
    moved = 0
    for start in range(0, len(abandoned), _AT_ONCE):
        tags = abandoned[start : start + _AT_ONCE]
        for tag, noted in zip(tags, client.hmget(_UNACKED, tags), strict=True):
            if noted is not None and (ours := _redelivered(noted, queues)) is not None:
                moved += client.eval(RETURN, 3, _UNACKED, _INDEX, ours[0], tag, noted, ours[1])
    if moved:
        log.warning("messages held by an earlier version were returned to their queue", messages=moved)


def _redelivered(noted: bytes, queues: Collection[str]) -> tuple[str, str] | None:
    """Return the queue and text of an unacknowledged message, or None if it is not from one of these queues."""
    try:
        message, _, routing_key = loads(bytes_to_str(noted))
        if routing_key not in queues:
            return None
        message["headers"]["redelivered"] = True
        message["properties"]["delivery_info"]["redelivered"] = True
    except (ValueError, TypeError, KeyError):
        return None
    return routing_key, dumps(message)
