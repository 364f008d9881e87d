"""Differences between brokers."""

from __future__ import annotations

from typing import Any, Final

from amqp.exceptions import PreconditionFailed
from celery import Celery
from kombu import Consumer, Exchange, Queue

QUEUE: Final = "runturn"  # unless the setting `queues` names others

# How long a message may stay unacknowledged before the Redis transport redelivers it. Workers refresh what they
# hold (see `redis_transport`), so this only sets how soon a killed worker's messages come back.
VISIBILITY_TIMEOUT_S: Final = 30.0

NO_RESULTS: Final = "disabled://"
OTHERWISE_DECLARED: Final = (
    "runturn's queue already exists on the broker with different properties; delete it there, "
    "or use another virtual host"
)
_EVENTS = "runturn.events"

# A producer waits twice for an answer, and has ten seconds for all it does.
_CONFIRM_S = 4.0
_ANSWER_S = 10.0  # for Redis: a cut link goes unnoticed for a quarter of an hour
_AMQP_ANSWER_S = 4.0  # for each answer of RabbitMQ
RECONNECTION: Final = {"max_retries": 1, "interval_start": 0, "interval_step": 0.2, "interval_max": 0.2}


def speaks_redis(broker_url: str) -> bool:
    """Return whether the broker is Redis or Valkey."""
    return broker_url.startswith(("redis", "valkey"))


def speaks_amqp(broker_url: str) -> bool:
    """Return whether the broker is RabbitMQ."""
    return broker_url.startswith(("amqp", "pyamqp"))


def connection_errors(broker: Any) -> tuple[type[Exception], ...]:
    """Return what a connection, consumer or channel of kombu's raises when the broker is down.

    For Redis, kombu 5.7 includes KeyError, because it may raise one itself. A KeyError is far more likely to be
    our own bug, which must not be mistaken for the broker's.
    """
    return tuple(error for error in broker.connection_errors if error is not KeyError)


def declared_otherwise(error: Exception) -> bool:
    """Return whether RabbitMQ refused a declaration. It also closes a channel with 406 for other reasons."""
    return isinstance(error, PreconditionFailed) and error.method_name == "Queue.declare"


def transport_options(broker_url: str) -> dict[str, object]:
    """Return kombu's transport options for a broker that keeps turns' messages."""
    if speaks_redis(broker_url):
        return {
            "visibility_timeout": VISIBILITY_TIMEOUT_S,
            "unacked_mutex_expire": 10,  # s; a worker killed while restoring messages still holds it
            "socket_keepalive": "socket" not in broker_url,
            "socket_timeout": _ANSWER_S,
        }
    if speaks_amqp(broker_url):
        # A sent message is on disk on most of the cluster's nodes.
        return {"confirm_publish": True, **answer_deadlines(broker_url)}
    return {}


def answer_deadlines(broker_url: str) -> dict[str, object]:
    """Return kombu's transport options that make RabbitMQ answer in time.

    Without them, a declaration or subscription that RabbitMQ does not answer blocks its thread forever. RabbitMQ
    answers none for a quorum queue without a leader, which it may have after a crash.
    """
    return {"read_timeout": _AMQP_ANSWER_S, "write_timeout": _AMQP_ANSWER_S} if speaks_amqp(broker_url) else {}


def publish_options(broker_url: str) -> dict[str, object]:
    """Return the options for each message: it is sent again once, over a new connection.

    RabbitMQ must have a queue for it, and confirm it in time. It confirms nothing while short of memory or disk; a
    producer must learn of that.
    """
    confirmed = {"mandatory": True, "confirm_timeout": _CONFIRM_S} if speaks_amqp(broker_url) else {}
    return {"retry_policy": RECONNECTION, **confirmed}


def results_url(broker_url: str, given: str | None) -> str:
    """Return `given`, or else the broker if it is Redis: RabbitMQ is a queue, not a store."""
    return given or (broker_url if speaks_redis(broker_url) else NO_RESULTS)


def priority_of(broker_url: str, given: object) -> int:
    """Return a message's priority on the scale of requests: -9 to 9, higher first, 0 without one.

    With Redis, kombu treats 0 as the highest priority; with RabbitMQ, it is the lowest.
    """
    priority = min(max(given, 0), 9) if isinstance(given, int) else 0
    return -priority if speaks_redis(broker_url) else priority


def turn_queue(name: str) -> Queue:
    """Return a queue of turns, declared like Celery by name alone: RabbitMQ refuses (406) differing declarations.

    Its type there and the handling of dead letters come from its virtual host: a default queue type and a policy.
    """
    return Queue(name, Exchange(name, type="direct"), routing_key=name)


def dead_queue(name: str) -> Queue:
    """Return the queue for a turn queue's dead letters on RabbitMQ; workers empty it into the ledger.

    It is bound to nothing: dead letters are routed by its name.
    """
    return Queue(f"{name}.dead", queue_arguments={"x-queue-type": "quorum"})


def queue_names(app: Celery) -> list[str]:
    """Return the queues that an application's workers receive turns from. It sends to the first."""
    return [queue.name for queue in app.conf.task_queues]


def events_exchange(broker_url: str) -> Exchange:
    """Return the exchange for live events, with one routing key per turn.

    With kombu's Redis transport, a topic would be a list per watcher, which keeps filling after the watcher is
    killed, and a table that publishers read before each message. Its "fanout" is PUBLISH, by routing key.
    """
    kind = "fanout" if speaks_redis(broker_url) else "topic"
    return Exchange(f"{_EVENTS}.{kind}", type=kind, durable=False, delivery_mode="transient")


def unlist(subscriber: Consumer, broker_url: str) -> None:
    """Remove a subscriber to live events from kombu's list; it still receives them.

    With Redis, publishing ignores that list, and a killed subscriber would stay on it forever.
    """
    if speaks_redis(broker_url):
        for queue in subscriber.queues:
            queue.delete()
