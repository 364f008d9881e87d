"""A RabbitMQ that does not answer: nobody waits for it for long, and workers come back by themselves."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import amqp
import pytest
from celery import Celery
from kombu.exceptions import OperationalError

from adapters.protocol.result import Status
from tests.support.brokers.deaf_link import (
    ACK,
    CONSUME_OK,
    DECLARE_OK,
    OPEN_OK,
    QOS_OK,
    SELECT_OK,
    DeafLink,
    Method,
)
from tests.support.brokers.node import Node, Vhost
from tests.support.fleets.fleet import WAIT_S, Worker
from tests.support.fleets.rabbit_fleet import RabbitFleet
from tests.support.pages import verdict
from tests.support.waiting import slowness, until
from workers.app import QUEUE, create_app
from workers.brokers import settings
from workers.brokers.settings import dead_queue
from workers.client.publish import send
from workers.errors import BrokerUnavailable

DEAD = dead_queue(QUEUE)
SILENT = "turn unanswered may have been queued: the broker did not answer in time"
BACK_S = 15.0  # from the broker's return until turns are received

ANSWERS = {
    "channel": OPEN_OK,
    "declaration": DECLARE_OK,
    "prefetch count": QOS_OK,
    "subscription": CONSUME_OK,
}


@pytest.fixture
def link(rabbitmq: Node) -> Iterator[DeafLink]:
    with DeafLink(rabbitmq.port) as link:
        yield link


@pytest.fixture
def fleet(tmp_path: Path, vhost: Vhost, link: DeafLink) -> Iterator[RabbitFleet]:
    """A fleet whose workers use the link; its client does not."""
    with RabbitFleet(tmp_path, vhost) as fleet:
        fleet.environment["RUNTURN_BROKER_URL"] = _over(link, vhost)
        yield fleet


def _over(link: DeafLink, vhost: Vhost) -> str:
    return vhost.url.replace(str(vhost.server.port), str(link.port))


def _reasons(worker: Worker) -> dict[str, str]:
    return verdict(worker.metrics.replace("/metrics", "/readyz"))[1]


@pytest.mark.parametrize("lost", ANSWERS.values(), ids=ANSWERS)
def test_worker_whose_broker_answers_again_is_back_at_once(
    fleet: RabbitFleet, link: DeafLink, recording: Path, lost: Method
) -> None:
    worker = fleet.start_worker()
    until(lambda: not _reasons(worker), "a worker that is ready")
    link.lose(lost)
    link.cut()
    until(lambda: link.count >= 3, "the worker to ask again and again")
    assert "not subscribed to its queues" in _reasons(worker)["consuming"]
    turn_id = fleet.client.enqueue(fleet.recorded(recording))
    with slowness(lambda: fleet.command("watch", "no-such-turn")) as slow:
        link.lose(None)
        answering = time.monotonic()
        until(lambda: not fleet.vhost.messages(QUEUE) and not _reasons(worker), "the worker to receive turns")
        took_s = time.monotonic() - answering
    assert took_s < BACK_S + 5 * slow.longest_s
    assert fleet.result(turn_id).status is Status.COMPLETED
    assert worker.process.poll() is None


@pytest.mark.parametrize("torn", [False, True], ids=["between frames", "within a frame"])
def test_worker_whose_link_is_cut_silently_says_so_within_half_a_minute(
    fleet: RabbitFleet, link: DeafLink, torn: bool
) -> None:
    worker = fleet.start_worker()
    until(lambda: not _reasons(worker), "a worker that is ready")
    link.torn, link.mute = torn, True
    until(lambda: "consuming" in _reasons(worker), "the worker to notice", timeout_s=50)  # it was 60 and more
    link.mute = False
    until(lambda: not _reasons(worker), "the worker to be back")


def test_worker_receives_turns_and_leaves_in_order_although_nothing_is_confirmed(
    fleet: RabbitFleet, link: DeafLink, recording: Path
) -> None:
    """As while RabbitMQ is short of memory or disk."""
    worker = fleet.start_worker()
    until(lambda: not _reasons(worker), "a worker that is ready")
    link.lose(ACK)
    link.cut()
    until(lambda: b"turns are received again" in worker.log.read_bytes(), "the worker to be back")
    turn_id = fleet.client.enqueue(fleet.recorded(recording))
    until(lambda: not fleet.vhost.messages(QUEUE), "the message to be acked")
    assert fleet.result(turn_id).status is Status.COMPLETED
    worker.process.send_signal(signal.SIGTERM)
    assert worker.process.wait(WAIT_S) == 0


def test_dead_letter_queue_that_does_not_answer_holds_up_no_turn(
    fleet: RabbitFleet, vhost: Vhost, recording: Path
) -> None:
    """As after a kill of RabbitMQ 3.10 within half a second of the queue's declaration."""
    with amqp.Connection(host=f"127.0.0.1:{vhost.server.port}", virtual_host=vhost.name) as connection:
        channel = connection.channel()
        channel.queue_declare(DEAD.name, durable=True, auto_delete=False, arguments={"x-queue-type": "quorum"})
        channel.basic_publish(amqp.Message("{", delivery_mode=2), routing_key=DEAD.name)
    leader = f'list_to_atom("{vhost.name}_{DEAD.name}")'
    vhost.server.ask(f"sys:suspend({leader})")
    worker = fleet.start_worker()
    assert fleet.run(fleet.recorded(recording)).status is Status.COMPLETED
    until(lambda: b"a dead-letter queue cannot be read" in worker.log.read_bytes(), "the worker to give it up")
    assert not _reasons(worker)
    vhost.server.ask(f"sys:resume({leader})")
    until(lambda: fleet.ledger.dead_letters.newest(1), "the dead letter to be kept")
    until(lambda: not fleet.vhost.messages(DEAD.name), "the dead letter to be acked")


@pytest.mark.parametrize("lost", [OPEN_OK, DECLARE_OK, SELECT_OK, ACK])
def test_producer_that_is_not_answered_says_so_and_can_go_on(
    fleet: RabbitFleet, link: DeafLink, lost: Method, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_AMQP_ANSWER_S", "_CONFIRM_S"):
        monkeypatch.setattr(settings, name, 0.5)
    app = create_app(_over(link, fleet.vhost))
    until(lambda: _sent(app, fleet, "first"), "the broker to answer in time")
    link.lose(lost)
    link.cut()
    with pytest.raises(BrokerUnavailable, match=SILENT):
        send(app, [fleet.request(turn_id="unanswered")])
    link.lose(None)
    until(lambda: _sent(app, fleet, "last"), "the broker to answer in time")
    assert {"first", "last"} <= fleet.vhost.take_all(QUEUE)


def _sent(app: Celery, fleet: RabbitFleet, turn_id: str) -> bool:
    """Whether a broker that is not deaf, but perhaps slow, has confirmed it; it may get it twice."""
    try:
        send(app, [fleet.request(turn_id=turn_id)])
    except BrokerUnavailable:
        return False
    return True


@pytest.mark.parametrize("lost", [OPEN_OK, DECLARE_OK, SELECT_OK, ACK])
def test_command_that_is_not_answered_names_the_turn_after_ten_seconds(
    fleet: RabbitFleet, link: DeafLink, lost: Method
) -> None:
    link.lose(lost)
    with slowness(lambda: fleet.command("watch", "no-such-turn")) as slow:
        began = time.monotonic()
        said = fleet.command("enqueue", "do it", "--turn-id", "unanswered")
        took_s = time.monotonic() - began
    assert took_s < 10 + 5 * slow.longest_s
    assert (said.returncode, said.stdout) == (3, "")
    assert SILENT in said.stderr and said.stderr.endswith("will run once: --turn-id unanswered\n")


def test_plain_celery_with_a_read_timeout_does_not_wait_for_a_confirmation(vhost: Vhost, link: DeafLink) -> None:
    """As docs/producers.md says."""
    app = Celery(broker=_over(link, vhost), set_as_current=False)
    app.conf.broker_transport_options = {"confirm_publish": True, "read_timeout": 0.5}
    app.send_task("runturn.run_turn", queue=QUEUE, ignore_result=True)
    link.lose(ACK)
    with pytest.raises(OperationalError):
        app.send_task("runturn.run_turn", queue=QUEUE, ignore_result=True)
    assert link.count > 1
