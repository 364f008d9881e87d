"""What differs from broker to broker."""

from __future__ import annotations

from typing import Final

from kombu import Consumer, Exchange

# How long a message may stay unacked before the Redis transport hands it out again. Workers keep the messages of
# running turns fresh (see `workers.visibility`), so this is only how soon a killed worker's turns come back.
VISIBILITY_TIMEOUT_S: Final = 30.0

_EVENTS = "runturn.events"


def speaks_redis(broker_url: str) -> bool:
    """Whether it is a Redis or Valkey."""
    return broker_url.startswith(("redis", "valkey"))


def transport_options(broker_url: str) -> dict[str, object]:
    """What kombu is told about a broker that keeps turns' messages."""
    if not speaks_redis(broker_url):
        return {}
    return {"visibility_timeout": VISIBILITY_TIMEOUT_S, "socket_keepalive": "socket" not in broker_url}


def events_exchange(broker_url: str) -> Exchange:
    """Where live events go, each turn's under a routing key of its own.

    With kombu's Redis transport, a topic would be a list for each watcher, which fills on when the watcher is
    killed, and a table that publishers read before each message. Its "fanout" is PUBLISH, by routing key.
    """
    kind = "fanout" if speaks_redis(broker_url) else "topic"
    return Exchange(f"{_EVENTS}.{kind}", type=kind, durable=False, delivery_mode="transient")


def unlist(subscriber: Consumer, broker_url: str) -> None:
    """Take a subscriber to live events off kombu's list of them; it receives them all the same.

    With Redis, publishing does not look at that list, and one who is killed would stay on it for good.
    """
    if speaks_redis(broker_url):
        for queue in subscriber.queues:
            queue.delete()
