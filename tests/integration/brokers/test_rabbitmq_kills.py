"""A RabbitMQ that is killed (kill -9) while messages are sent and received.

KILLS=20 kills it that many times under the worker, instead of twice.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import amqp
import pytest
from celery import Celery

from adapters.protocol.result import Status
from tests.docs.pages import page
from tests.support.brokers.node import Vhost
from tests.support.brokers.rabbitmq import RabbitMQ
from tests.support.fleets.rabbit_fleet import RabbitFleet
from tests.support.pages import verdict
from tests.support.waiting import until
from workers.app import QUEUE, create_app
from workers.client.publish import send
from workers.errors import BrokerUnavailable

KILLS = int(os.environ.get("KILLS", "2"))
SEED = 20261125
BACK_S = 15.0  # from the broker's return until the worker receives turns
SENDERS = 4  # each with a connection of its own in the application's pool

Send = Callable[[str], None]  # sends a message with that id, or raises


@pytest.fixture(scope="module")
def mortal() -> Iterator[RabbitMQ]:
    """A server to kill. Who kills it starts it again."""
    with RabbitMQ() as server:
        yield server


def documented_app(broker: str) -> Celery:
    """The application of the first program in docs/producers.md."""
    program = next(block.text for block in page("docs/producers.md").blocks if block.language == "python")
    lines = [line for line in program.splitlines() if line.startswith(("app = ", "app.conf."))]
    names: dict[str, object] = {"Celery": Celery, "os": os, "broker": broker}
    exec("\n".join(lines), names)
    app = names["app"]
    assert isinstance(app, Celery)
    app.conf.result_backend = None  # RabbitMQ is none
    return app


def by_celery(app: Celery, fleet: RabbitFleet) -> Send:
    document = fleet.request().model_dump(mode="json", exclude_defaults=True)

    def once(message_id: str) -> None:
        app.send_task("runturn.run_turn", args=[document], task_id=message_id, queue=QUEUE, ignore_result=True)

    return once


def by_client(app: Celery, fleet: RabbitFleet) -> Send:
    return lambda message_id: send(app, [fleet.request(turn_id=message_id)])


WAYS: dict[str, tuple[Callable[[str], Celery], Callable[[Celery, RabbitFleet], Send], type[Exception]]] = {
    "documented": (documented_app, by_celery, Exception),
    "client": (create_app, by_client, BrokerUnavailable),
}


@pytest.mark.parametrize("way", WAYS)
def test_message_sent_around_a_kill_arrives_or_its_sender_learns_that_it_may_not(
    mortal: RabbitMQ, tmp_path: Path, way: str
) -> None:
    application, sending, fault = WAYS[way]
    with RabbitFleet(tmp_path, mortal.new_vhost()) as fleet:
        app = application(fleet.vhost.url)
        once, over = sending(app, fleet), threading.Event()
        confirmed: set[str] = set()
        refused: set[str] = set()

        def keep_sending(sender: int) -> None:
            number = 0
            while not over.is_set():
                message_id = f"{sender}-{number}"
                try:
                    once(message_id)
                    confirmed.add(message_id)
                except fault:
                    refused.add(message_id)
                number += 1

        with ThreadPoolExecutor(SENDERS) as pool:
            senders = [pool.submit(keep_sending, sender) for sender in range(SENDERS)]
            until(lambda: len(confirmed) > 5 * SENDERS, "messages")
            mortal.sync()
            mortal.kill()
            before = len(confirmed)
            mortal.start()
            until(lambda: len(confirmed) > before + SENDERS, "messages to the server that returned")
            over.set()
        for each in senders:
            each.result()
        # Every connection in the pool is stale now, and unused since before the kill.
        mortal.kill()
        mortal.start()
        for number in range(2 * SENDERS):
            once(f"stale-{number}")
            confirmed.add(f"stale-{number}")
        arrived = fleet.vhost.take_all(QUEUE)
        assert confirmed - arrived == set()
        assert refused, "the server was away while messages were sent"
        app.close()


@pytest.mark.timeout(120 + 60 * KILLS)
def test_worker_receives_turns_soon_after_its_killed_broker_is_back(
    mortal: RabbitMQ, tmp_path: Path, recording: Path
) -> None:
    rng = random.Random(SEED)
    with RabbitFleet(tmp_path, mortal.new_vhost()) as fleet:
        worker = fleet.start_worker()
        mortal.sync()  # of its queues, which are new
        took = []
        for kill in range(KILLS):
            turns = [fleet.client.enqueue(fleet.recorded(recording)) for _ in range(rng.randrange(1, 4))]
            time.sleep(rng.uniform(0.0, 0.5))  # the moment of the kill, not a wait
            mortal.kill()
            until(lambda: "consuming" in _reasons(fleet), "the worker to say that it receives nothing")
            back_at = _started(mortal, fleet.vhost)
            until(lambda: not _reasons(fleet), "the worker to be ready")
            took.append(time.monotonic() - back_at)
            print(f"kill {kill + 1}: ready {took[-1]:.1f} s after the broker's return", flush=True)
            turns.append(fleet.client.enqueue(fleet.recorded(recording)))
            assert {fleet.result(turn_id).status for turn_id in turns} == {Status.COMPLETED}
        assert max(took) < BACK_S, took
        assert worker.process.poll() is None
        until(lambda: not fleet.vhost.messages(QUEUE), "all messages to be acked")


def _reasons(fleet: RabbitFleet) -> dict[str, str]:
    return verdict(fleet.workers[-1].metrics.replace("/metrics", "/readyz"))[1]


def _started(server: RabbitMQ, vhost: Vhost) -> float:
    """Start the server; return when it first accepted a connection."""
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(server.start)
        until(lambda: _accepts(vhost), "the server to accept connections")
        back_at = time.monotonic()
        starting.result()
    return back_at


def _accepts(vhost: Vhost) -> bool:
    try:
        with amqp.Connection(host=f"127.0.0.1:{vhost.server.port}", virtual_host=vhost.name, connect_timeout=5):
            return True
    except (OSError, amqp.AMQPError):
        return False
