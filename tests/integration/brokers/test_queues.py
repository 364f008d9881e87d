"""Workers receive turns from the queues that a setting names, and from no others."""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from celery import Celery
from kombu import Connection

from adapters.protocol.result import Status
from tests.support.brokers.node import Vhost
from tests.support.fleets.fleet import Fleet
from tests.support.fleets.impatient import IMPATIENT
from tests.support.fleets.rabbit_fleet import RabbitFleet
from tests.support.waiting import until
from workers.app import TASK, create_app
from workers.brokers.redis_transport import UNACKED
from workers.brokers.settings import dead_queue, turn_queue
from workers.client.sync import Client

QUEUES = ("first", "second", "third")
NAMES = json.dumps(QUEUES)


@contextmanager
def _fleet(tmp_path: Path, vhost: Vhost | None) -> Iterator[tuple[Fleet, str]]:
    """A fleet with these queues, and its broker."""
    if vhost is None:
        with Fleet(tmp_path, queues=NAMES) as fleet:
            yield fleet, fleet.broker.url
    else:
        with RabbitFleet(tmp_path, vhost, queues=NAMES) as fleet:
            yield fleet, vhost.url


def _left(fleet: Fleet) -> dict[str, int]:
    """How many messages each queue has."""
    if isinstance(fleet, RabbitFleet):
        return {name: fleet.vhost.messages(name) for name in QUEUES}
    with redis.Redis(unix_socket_path=str(fleet.broker.socket)) as client:
        return {name: client.llen(name) + client.hlen(UNACKED) for name in QUEUES}


@pytest.fixture(params=["redis", "rabbitmq"])
def broker(request: pytest.FixtureRequest) -> Vhost | None:
    return request.getfixturevalue("vhost") if request.param == "rabbitmq" else None


def test_turns_come_from_each_queue(tmp_path: Path, broker: Vhost | None, recording: Path) -> None:
    with _fleet(tmp_path, broker) as (fleet, url):
        client = Client(create_app(url, queues=QUEUES), fleet.ledger)
        producer = Celery(broker=url, set_as_current=False)

        def send(turn_id: str, queue: str) -> None:
            request = fleet.recorded(recording, turn_id=turn_id).model_dump(mode="json", exclude_defaults=True)
            producer.send_task(TASK, [request], task_id=turn_id, queue=queue, ignore_result=True)

        for number, queue in enumerate(QUEUES):
            send(f"before.{number}", queue)
        fleet.start_worker()
        for number, queue in enumerate((*QUEUES, *QUEUES)):
            send(f"after.{number}", queue)
        own = client.enqueue(fleet.recorded(recording))
        for turn_id in (*(f"before.{n}" for n in range(3)), *(f"after.{n}" for n in range(6)), own):
            assert fleet.result(turn_id).status is Status.COMPLETED
        until(lambda: not any(_left(fleet).values()), "all messages to be acked")
        fleet.assert_nothing_left()


def test_client_sends_to_the_first_queue(tmp_path: Path, broker: Vhost | None, recording: Path) -> None:
    with _fleet(tmp_path, broker) as (fleet, url):
        app = create_app(url, queues=QUEUES)
        Client(app, fleet.ledger).enqueue(fleet.recorded(recording))
        app.send_task(TASK, [{}], ignore_result=True)
        until(lambda: _left(fleet)["first"] == 2, "the queue to have both")


def test_dead_letters_come_from_each_queue_and_return_to_theirs(tmp_path: Path, broker: Vhost | None) -> None:
    with _fleet(tmp_path, broker) as (fleet, url):
        fleet.start_worker()
        names = ["third"]
        with Connection(url) as connection:
            producer = connection.Producer()
            headers = {"task": TASK, "id": "poison"}
            options: dict[str, Any] = {"content_type": "application/json", "content_encoding": "utf-8"}
            queue = turn_queue("third")
            producer.publish(b"{", routing_key="third", declare=[queue], headers=headers, **options)
            if broker is not None:  # as its policy has it
                given_up = {**headers, "x-first-death-queue": "second", "x-first-death-reason": "delivery_limit"}
                name = dead_queue("second").name
                producer.publish(b"[", routing_key=name, headers=given_up, mandatory=True, **options)
                names.append("second")
        letters = fleet.ledger.dead_letters
        until(lambda: sorted(row.queue for row in letters.newest(9)) == sorted(names), "the dead letters")
        until(lambda: not any(_left(fleet).values()), "the messages to be acked")
        for worker in fleet.workers:
            worker.kill()
        assert fleet.command("dead", "retry", "--all").returncode == 0
        until(
            lambda: {name for name, count in _left(fleet).items() if count} == set(names), "them in their queues"
        )


def test_dead_letter_of_a_former_queue_goes_to_the_first(tmp_path: Path) -> None:
    with Fleet(tmp_path) as fleet:
        worker = fleet.start_worker()
        with Connection(fleet.broker.url) as connection:
            connection.Producer().publish(b"{", routing_key="runturn", content_type="application/json")
        until(lambda: fleet.ledger.dead_letters.newest(9), "the dead letter")
        with redis.Redis(unix_socket_path=str(fleet.broker.socket)) as client:
            until(lambda: not client.hlen(UNACKED), "the message to be acked")
        worker.kill()
        environment = {**fleet.environment, "RUNTURN_QUEUES": NAMES}
        assert fleet.command("dead", "retry", "--all", env=environment).returncode == 0
        assert _left(fleet)["first"] == 1


def test_killed_worker_loses_no_message_of_its_second_queue(tmp_path: Path, recording: Path) -> None:
    with _fleet(tmp_path, None) as (fleet, url), redis.Redis(unix_socket_path=str(fleet.broker.socket)) as client:
        worker = fleet.start_worker()
        with closing(sqlite3.connect(fleet.state.ledger_url.removeprefix("sqlite:///"))) as other:
            other.execute("BEGIN IMMEDIATE")  # so that nobody can acknowledge it
            request = fleet.recorded(recording, turn_id="held").model_dump(mode="json", exclude_defaults=True)
            Celery(broker=url, set_as_current=False).send_task(TASK, [request], queue="second", ignore_result=True)
            until(lambda: client.hlen(UNACKED), "the worker to have it")
            worker.kill()
        fleet.start_worker(prefix=(sys.executable, "-c", IMPATIENT))
        until(lambda: fleet.ledger.reports.result("held"), "the turn to be settled")
        until(lambda: not any(_left(fleet).values()), "the message to be acked")
