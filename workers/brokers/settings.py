"""What differs from broker to broker."""

from __future__ import annotations

from typing import Any, Final

from celery import Celery
from kombu import Consumer, Exchange, Queue

QUEUE: Final = "runturn"  # unless the setting `queues` has others

# How long a message may stay unacked before the Redis transport hands it out again. Workers keep what they hold
# fresh (see `redis_transport`), so this is only how soon the messages of a killed worker come back.
VISIBILITY_TIMEOUT_S: Final = 30.0

NO_RESULTS: Final = "disabled://"
OTHERWISE_DECLARED: Final = (
    "the broker has a queue of runturn's name that somebody declared in another way; delete it there, "
    "or use another virtual host"
)
_EVENTS = "runturn.events"

_CONFIRM_S = 10.0
_ANSWER_S = 10.0  # for Redis: a link that was cut says nothing for a quarter of an hour


def speaks_redis(broker_url: str) -> bool:
    """Whether it is a Redis or Valkey."""
    return broker_url.startswith(("redis", "valkey"))


def speaks_amqp(broker_url: str) -> bool:
    """Whether it is a RabbitMQ."""
    return broker_url.startswith(("amqp", "pyamqp"))


def connection_errors(broker: Any) -> tuple[type[Exception], ...]:
    """Return what a connection, consumer or channel of kombu's raises when the broker is away.

    For Redis, kombu 5.7 counts KeyError among them, because it may raise one itself. It is far more likely to be
    a fault of ours, which is not to be taken for the broker's.
    """
    return tuple(error for error in broker.connection_errors if error is not KeyError)


def transport_options(broker_url: str) -> dict[str, object]:
    """What kombu is told about a broker that keeps turns' messages."""
    if speaks_redis(broker_url):
        return {
            "visibility_timeout": VISIBILITY_TIMEOUT_S,
            "unacked_mutex_expire": 10,  # s; a worker that is killed while it restores messages holds it
            "socket_keepalive": "socket" not in broker_url,
            "socket_timeout": _ANSWER_S,
        }
    if speaks_amqp(broker_url):
        return {"confirm_publish": True}  # a message that is sent is on a disk, of most of the cluster's nodes
    return {}


def publish_options(broker_url: str) -> dict[str, object]:
    """What is said with each message: RabbitMQ has to have a queue for it, and to confirm it in time.

    It confirms nothing while it is short of memory or disk; a producer has to hear of that.
    """
    return {"mandatory": True, "confirm_timeout": _CONFIRM_S} if speaks_amqp(broker_url) else {}


def results_url(broker_url: str, given: str | None) -> str:
    """Where Celery keeps results unless it is given a place: not in RabbitMQ, which is a queue and no store."""
    return given or (broker_url if speaks_redis(broker_url) else NO_RESULTS)


def priority_of(broker_url: str, given: object) -> int:
    """A message's priority as a request has it: -9 to 9, a higher one first, 0 for messages without any.

    With Redis, kombu takes 0 for the highest of all; with RabbitMQ, it is the lowest.
    """
    priority = min(max(given, 0), 9) if isinstance(given, int) else 0
    return -priority if speaks_redis(broker_url) else priority


def turn_queue(name: str) -> Queue:
    """A queue of turns, declared as Celery does it by name alone: RabbitMQ refuses (406) who says otherwise.

    What kind of queue it is there, and what becomes of dead letters, its virtual host says: a default queue type,
    and a policy.
    """
    return Queue(name, Exchange(name, type="direct"), routing_key=name)


def dead_queue(name: str) -> Queue:
    """Return where RabbitMQ puts what it gives up on in a queue of turns; workers empty it into the ledger.

    Bound to nothing: dead letters come by its name.
    """
    return Queue(f"{name}.dead", queue_arguments={"x-queue-type": "quorum"})


def queue_names(app: Celery) -> list[str]:
    """Return the queues that an application's workers receive turns from. What it sends goes to the first."""
    return [queue.name for queue in app.conf.task_queues]


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
