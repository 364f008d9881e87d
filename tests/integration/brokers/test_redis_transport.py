"""On Redis, a message is always in a list that outlives whoever holds it, and in one only."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import redis
from kombu import Connection, Consumer, Exchange, Queue, pidbox
from kombu import transport as kombu_transport
from kombu.exceptions import ContentDisallowed

from tests.support.waiting import until
from workers.brokers import redis_transport
from workers.brokers.embedded import EmbeddedBroker
from workers.brokers.redis_transport import ALIVE, UNACKED, UNACKED_INDEX

QUEUE = "jobs"
SILENT_S = 300  # the visibility timeout; `pass_by` lets it pass

# A consumer that stops between the pop and the note, as a kill or a pause may catch it.
CAUGHT = """
import os, signal, sys
from workers.brokers import redis_transport

note = redis_transport.QoS.append

def append(self, message, tag):
    print("popped", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
    note(self, message, tag)

redis_transport.QoS.append = append
redis_transport.install()
from tests.integration.brokers.test_redis_transport import consuming

with consuming(sys.argv[1]) as received:
    received.drain(60)
    for body in received.bodies:
        print("got", body, flush=True)
    sys.stdin.read()  # until it may leave
"""


class consuming:
    """A consumer with a connection of its own."""

    def __init__(self, url: str, prefetch: int = 100) -> None:
        options = {"visibility_timeout": float(SILENT_S)}
        self.connection = Connection(url, transport_options=options)
        self.bodies: list[str] = []
        self.messages: list[Any] = []
        self._prefetch = prefetch

    def __enter__(self) -> consuming:
        self.channel = self.connection.channel()
        consumer = Consumer(self.channel, [Queue(QUEUE)], on_message=self._receive, prefetch_count=self._prefetch)
        consumer.consume()
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def look(self) -> None:
        """Report what it holds, and look for what others have lost, as it does every sixth of the timeout."""
        self.channel.qos._looked_at = 0.0
        self.channel.qos.restore_visible()
        self.drain(0.2, len(self.bodies) + 1)

    def drain(self, timeout_s: float, count: int = 1) -> None:
        """Until it has so many messages, or the time is over."""
        ends = time.monotonic() + timeout_s
        while len(self.bodies) < count and (left := ends - time.monotonic()) > 0:
            try:
                self.connection.drain_events(timeout=min(left, 0.1))
            except TimeoutError:
                self.channel.qos.restore_visible()

    def _receive(self, message: Any) -> None:
        readable = message.content_type == "text/plain"
        self.bodies.append(message.decode() if readable else message.body)
        self.messages.append(message)


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a worker, for the time of a test."""
    monkeypatch.setattr(kombu_transport, "TRANSPORT_ALIASES", dict(kombu_transport.TRANSPORT_ALIASES))
    monkeypatch.setattr(kombu_transport, "_transport_cache", {})
    redis_transport.install()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    broker = EmbeddedBroker(tmp_path)
    broker.ensure()
    yield broker
    broker.stop()


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[redis.Redis]:
    with redis.Redis(unix_socket_path=str(broker.socket)) as client:
        yield client


@pytest.fixture
def caught(broker: EmbeddedBroker) -> Iterator[subprocess.Popen[str]]:
    """A consumer that has popped a message, and has not noted it."""
    send(broker, "precious")
    process = subprocess.Popen(
        [sys.executable, "-c", CAUGHT, broker.url], stdout=subprocess.PIPE, text=True, stdin=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdin is not None
    _popped(process)
    yield process
    process.kill()
    process.wait()
    process.stdout.close()
    process.stdin.close()


def send(broker: EmbeddedBroker, body: str, **options: Any) -> None:
    with Connection(broker.url) as connection:
        connection.Producer().publish(body, **{"routing_key": QUEUE, "declare": [Queue(QUEUE)]} | options)


def _said(process: subprocess.Popen[str]) -> str:
    """Its next line that is not a log's."""
    assert process.stdout is not None
    return next(line.strip() for line in process.stdout if not line.startswith("20"))


def _popped(process: subprocess.Popen[str]) -> None:
    assert _said(process) == "popped"
    until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED, "the consumer to stop")


def pass_by(client: redis.Redis) -> None:
    """Let the visibility timeout pass, for all that consumers have reported so far."""
    for reported in (ALIVE, UNACKED_INDEX):
        if members := client.zrange(reported, 0, -1):
            client.zadd(reported, dict.fromkeys(members, 0))


def transits(client: redis.Redis) -> list[bytes]:
    return list(client.scan_iter(f"{QUEUE} *"))


def test_message_of_a_killed_consumer_comes_back_once(
    broker: EmbeddedBroker, client: redis.Redis, caught: subprocess.Popen[str]
) -> None:
    assert (client.llen(QUEUE), client.hlen(UNACKED), len(transits(client))) == (0, 0, 1)
    caught.kill()
    caught.wait()
    pass_by(client)
    with consuming(broker.url) as one, consuming(broker.url) as other:
        until(lambda: [each.look() for each in (one, other)] and one.bodies + other.bodies, "the message")
        for each in (one, other):
            each.look()
        assert one.bodies + other.bodies == ["precious"]
        (one.messages + other.messages)[0].ack()
        assert not client.hlen(UNACKED)
    assert not transits(client)


def test_message_that_only_its_sleeping_consumer_has_is_delivered_and_noted(
    client: redis.Redis, caught: subprocess.Popen[str]
) -> None:
    """A server that was killed before it wrote the message to disk has forgotten it."""
    client.flushall()
    caught.send_signal(signal.SIGCONT)
    assert _said(caught) == "got precious"
    assert caught.stdin is not None
    caught.stdin.close()
    assert caught.wait(60) == 0
    assert client.llen(QUEUE) == 1, "it was given back, since it was not acknowledged"


def test_sleeper_delivers_what_was_given_back_again(
    broker: EmbeddedBroker, client: redis.Redis, caught: subprocess.Popen[str]
) -> None:
    pass_by(client)
    with consuming(broker.url) as other:
        until(lambda: other.look() or other.bodies, "the message")
        assert other.bodies == ["precious"]
        caught.send_signal(signal.SIGCONT)
        assert _said(caught) == "got precious"
        caught.kill()
        other.messages[0].ack()
    assert not client.hlen(UNACKED) + client.llen(QUEUE)


def test_nothing_is_delivered_twice_while_its_holder_lives(broker: EmbeddedBroker, client: redis.Redis) -> None:
    send(broker, "held")
    with consuming(broker.url, prefetch=1) as holder, consuming(broker.url) as other:
        holder.drain(60)
        for _ in range(3):
            pass_by(client)
            holder.look()
            other.look()
        assert (holder.bodies, other.bodies) == (["held"], [])
        holder.messages[0].ack()


def test_nothing_is_delivered_twice_while_its_holder_lives_whichever_channel_holds_it(
    broker: EmbeddedBroker, client: redis.Redis
) -> None:
    send(broker, "first")
    send(broker, "second", routing_key="more", declare=[Queue("more")])
    received: list[Any] = []
    with Connection(broker.url, transport_options={"visibility_timeout": float(SILENT_S)}) as connection:
        channels = {queue: connection.channel() for queue in (QUEUE, "more")}
        for queue, channel in channels.items():
            Consumer(channel, [Queue(queue)], on_message=received.append, prefetch_count=1).consume()
        until(lambda: _drained(connection) and len(received) == 2, "both messages")
        with consuming(broker.url) as other:
            for _ in range(3):
                client.zadd(UNACKED_INDEX, dict.fromkeys(client.hkeys(UNACKED), client.time()[0] - SILENT_S / 2))
                for channel in channels.values():
                    channel.qos._looked_at = 0.0
                until(
                    lambda: _drained(connection) and all(each.qos._looked_at for each in channels.values()),
                    "each channel to report",
                )
                held = client.zrange(UNACKED_INDEX, 0, -1, withscores=True)
                assert min(score for _, score in held) > client.time()[0] - SILENT_S / 4
                other.look()
            assert (client.hlen(UNACKED), other.bodies, len(received)) == (2, [], 2)


def test_consumer_whose_clock_is_ahead_takes_nothing_from_others(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(broker, "held")
    with consuming(broker.url, prefetch=1) as holder, consuming(broker.url) as other:
        holder.drain(60)
        now = time.time
        monkeypatch.setattr("time.time", lambda: now() + 3600)
        monkeypatch.setattr("kombu.transport.redis.time", lambda: now() + 3600)
        for _ in range(2):
            other.look()
        assert (holder.bodies, other.bodies) == (["held"], [])
        holder.messages[0].ack()


def test_what_an_earlier_version_has_abandoned_under_common_keys_is_brought_along(
    broker: EmbeddedBroker, client: redis.Redis
) -> None:
    held = {}
    for tag, body in enumerate(("abandoned", "held", "acknowledged", "foreign")):
        send(broker, body)
        note = [json.loads(client.rpop(QUEUE)), "", "another" if body == "foreign" else QUEUE]
        if body != "acknowledged":
            held[str(tag)] = json.dumps(note)
        client.zadd("unacked_index", {str(tag): time.time() if body == "held" else 0})
    client.hset("unacked", mapping={**held, "4": "nobody can read this"})
    client.zadd("unacked_index", {"4": 0})
    with consuming(broker.url) as one, consuming(broker.url) as other:
        until(lambda: [c.drain(0.2) for c in (one, other)] and one.bodies + other.bodies, "the message")
        one.drain(0.5, 2)
        assert one.bodies + other.bodies == ["abandoned"]
        (message,) = one.messages + other.messages
        assert message.delivery_info["redelivered"]
        message.ack()
    assert client.hkeys("unacked") == [b"1", b"3", b"4"]
    assert client.zrange("unacked_index", 0, -1) == [b"2", b"3", b"4", b"1"]
    assert not client.hlen(UNACKED) + client.llen(QUEUE)


def test_message_is_there_at_once_and_an_idle_consumer_asks_rarely(
    broker: EmbeddedBroker, client: redis.Redis
) -> None:
    with consuming(broker.url) as consumer:
        ends = time.monotonic() + 3
        while time.monotonic() < ends:
            consumer.drain(0.1)
        assert client.info("commandstats")["cmdstat_blmove"]["calls"] <= 4
        delays = []
        with Connection(broker.url) as connection:
            producer = connection.Producer()
            for number in range(20):
                producer.publish(str(number), routing_key=QUEUE)
                sent = time.monotonic()
                consumer.drain(60, number + 1)
                delays.append(time.monotonic() - sent)
        assert sorted(delays)[5] < 0.05, delays  # the machine may be busy; who asks once a second takes 0.25
        assert consumer.bodies == [str(number) for number in range(20)]
        for message in consumer.messages:
            message.ack()
    assert not client.hlen(UNACKED)
    assert not client.exists(ALIVE)


def test_messages_with_a_priority_are_found_in_order(broker: EmbeddedBroker, client: redis.Redis) -> None:
    for number in range(3):
        send(broker, f"urgent {number}", priority=0)
        send(broker, f"patient {number}", priority=9)
    with consuming(broker.url) as consumer:
        consumer.drain(60, 6)
        for word in ("urgent", "patient"):
            mine = [body for body in consumer.bodies if body.startswith(word)]
            assert mine == [f"{word} {number}" for number in range(3)]
        for message in consumer.messages:
            message.ack()
    assert not [key for key in client.scan_iter() if client.type(key) == b"list"]


@pytest.mark.parametrize("body", [b"no JSON", b"\xff", b"[]", b"{}", b'{"properties": {"delivery_tag": "a"}}'])
def test_what_is_no_message_is_delivered_as_one_that_nobody_accepts(
    broker: EmbeddedBroker, client: redis.Redis, body: bytes
) -> None:
    client.lpush(QUEUE, body)
    with consuming(broker.url) as consumer:
        consumer.drain(60)
        assert consumer.bodies == [body]
        with pytest.raises(ContentDisallowed):
            consumer.messages[0].accept = {"application/json"}
            consumer.messages[0].decode()
        consumer.messages[0].ack()
    assert not client.hlen(UNACKED)


def test_reply_to_a_producer_that_stopped_waiting_expires(broker: EmbeddedBroker, client: redis.Redis) -> None:
    """The producer lives on, so that nothing deletes its queue of replies."""
    with Connection(broker.url) as connection:
        mailbox = pidbox.Mailbox("celery", type="fanout")(connection)
        replies = mailbox.get_reply_queue()(connection.default_channel)
        replies.declare()
        reply_to = {"exchange": mailbox.reply_exchange.name, "routing_key": replies.routing_key}
        mailbox.Node("worker@here").reply({"worker@here": "late"}, **reply_to, ticket="1")
        assert client.llen(replies.name) == 1
        assert 0 < client.ttl(replies.name) <= 60
    send(broker, "a turn")
    assert client.ttl(QUEUE) == -1, "turns never expire"


def test_consumer_that_leaves_gives_back_at_once(broker: EmbeddedBroker, client: redis.Redis) -> None:
    with consuming(broker.url, prefetch=1) as consumer:
        send(broker, "first")
        consumer.drain(60)
        send(broker, "second")
    assert client.llen(QUEUE) == 2
    with consuming(broker.url) as consumer:
        consumer.drain(60, 2)
        assert set(consumer.bodies) == {"first", "second"}
        for message in consumer.messages:
            message.ack()


@pytest.mark.parametrize("holder", ["leaves", "lost"])
def test_message_is_given_back_whatever_has_become_of_its_exchange(
    broker: EmbeddedBroker, client: redis.Redis, holder: str
) -> None:
    send(broker, "precious", exchange=Exchange("market"), declare=[Queue(QUEUE, Exchange("market"), QUEUE)])
    with consuming(broker.url) as consumer:
        consumer.drain(60)
        client.set("_kombu.binding.market", "cannot be read as a set")
        if holder == "lost":
            with consuming(broker.url) as other:
                client.zadd(UNACKED_INDEX, dict.fromkeys(client.hkeys(UNACKED), 0))
                other.drain(60)
                assert other.messages[0].delivery_info["redelivered"]
    assert (client.llen(QUEUE), client.hlen(UNACKED), client.zcard(UNACKED_INDEX)) == (1, 0, 0)


def test_message_of_a_channel_with_several_queues_is_given_back_to_its_own(
    broker: EmbeddedBroker, client: redis.Redis
) -> None:
    send(broker, "precious")
    with Connection(broker.url) as connection:
        received: list[Any] = []
        Consumer(connection.channel(), [Queue("another"), Queue(QUEUE)], on_message=received.append).consume()
        until(lambda: _drained(connection) and received, "the message")
        assert client.hlen(UNACKED) == 1
    assert (client.llen(QUEUE), client.hlen(UNACKED), client.zcard(UNACKED_INDEX)) == (1, 0, 0)


def _drained(connection: Connection) -> bool:
    with contextlib.suppress(TimeoutError):
        connection.drain_events(timeout=0.1)
    return True


def test_message_that_is_on_its_way_over_a_connection_that_is_given_up_comes_again(
    broker: EmbeddedBroker, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kombu 5.7 gives one up by itself."""
    monkeypatch.setattr(redis_transport, "_WAIT_S", 60.0)
    with consuming(broker.url) as consumer:
        consumer.drain(0.3)
        send(broker, "precious")
        until(lambda: transits(client), "the message to be on its way")
        consumer.channel.client.connection.disconnect()
        pass_by(client)
        send(broker, "next")
        until(lambda: consumer.look() or len(consumer.bodies) == 2, "both messages")
        assert set(consumer.bodies) == {"precious", "next"}
        for message in consumer.messages:
            message.ack()
        assert not transits(client)


def test_acknowledging_over_a_closed_connection_is_a_connection_error(broker: EmbeddedBroker) -> None:
    send(broker, "late")
    with consuming(broker.url) as consumer:
        consumer.drain(60)
    with pytest.raises(consumer.connection.connection_errors):
        consumer.messages[0].ack()


def test_commands_share_a_client_until_its_connections_were_given_up(broker: EmbeddedBroker) -> None:
    with Connection(broker.url) as connection:
        channel = connection.default_channel
        with channel.conn_or_acquire() as first, channel.conn_or_acquire() as second:
            assert first is second
        channel._disconnect_pools()
        with channel.conn_or_acquire() as third:
            assert third is not first
            assert third.ping()


@pytest.mark.parametrize("fault", ["dropped", "restarted"])
def test_lost_connection_loses_nothing(broker: EmbeddedBroker, client: redis.Redis, fault: str) -> None:
    with consuming(broker.url) as consumer:
        consumer.drain(0.3)
        if fault == "dropped":
            client.client_kill_filter(_type="normal", skipme=True)
        else:
            os.kill(int(client.info("server")["process_id"]), signal.SIGKILL)
            until(broker.ensure, "the broker to be started again")
        send(broker, "after")
        with pytest.raises(consumer.connection.connection_errors):
            consumer.drain(60)
    with consuming(broker.url) as again:
        again.drain(60)
        assert again.bodies == ["after"]
        again.messages[0].ack()
