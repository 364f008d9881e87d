"""What producers can count on: many turns at once, no turn twice, nothing left behind in the broker."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis

from adapters.protocol.request import TurnRequest
from adapters.protocol.result import Status
from ops.errors import UnknownTurn
from ops.ledger import Claim, State
from tests.support.claiming import claim_turn
from tests.support.fleets.fleet import Fleet
from workers.app import QUEUE, create_app
from workers.client.sync import Client
from workers.errors import BrokerUnavailable, ResultTimeout


@pytest.fixture
def broker(fleet: Fleet) -> Iterator[redis.Redis]:
    with redis.Redis(unix_socket_path=str(fleet.broker.socket)) as client:
        yield client


def requests(fleet: Fleet, count: int) -> list[TurnRequest]:
    return [fleet.request(turn_id=f"turn-{number}") for number in range(count)]


def test_many_turns_are_queued_once_and_in_order(fleet: Fleet, broker: redis.Redis) -> None:
    wanted = requests(fleet, 250)
    turn_ids = fleet.client.enqueue_many(iter(wanted))
    assert turn_ids == [request.turn_id for request in wanted]
    assert broker.llen(QUEUE) == 250
    assert fleet.ledger.reports.queue_depths()[State.QUEUED] == 250
    assert fleet.client.enqueue_many(wanted[:10]) == turn_ids[:10]  # only further messages, no further turns
    assert fleet.ledger.reports.queue_depths()[State.QUEUED] == 250
    assert fleet.client.enqueue_many([]) == []


def test_many_turns_run_once_each_though_queued_twice(fleet: Fleet, recording: Path) -> None:
    wanted = [fleet.recorded(recording, turn_id=f"turn-{number}") for number in range(6)]
    fleet.client.enqueue_many(wanted)
    fleet.client.enqueue_many(wanted)
    fleet.start_worker()
    for request in wanted:
        result = fleet.result(request.turn_id)
        assert (result.status, result.attempts) == (Status.COMPLETED, 1)
        names = [event["event"] for event in fleet.client.events(request.turn_id)]
        assert names.count("session_started") == names.count("turn_settled") == 1
    fleet.assert_nothing_left()


def test_queueing_leaves_no_subscription_and_no_thread(fleet: Fleet, broker: redis.Redis) -> None:
    fleet.client.enqueue(fleet.request())
    connections, threads = len(broker.client_list()), threading.active_count()
    fleet.client.enqueue_many(requests(fleet, 50))
    for request in requests(fleet, 5):
        fleet.client.enqueue(request)
    assert (broker.pubsub_channels(), broker.pubsub_numpat()) == ([], 0)
    assert (len(broker.client_list()), threading.active_count()) == (connections, threads)


def test_broker_that_is_away_is_told_and_the_same_call_works_later(fleet: Fleet) -> None:
    fleet.broker.stop()
    with pytest.raises(BrokerUnavailable, match="the turn could not be queued"):
        fleet.client.enqueue(fleet.request())
    with pytest.raises(BrokerUnavailable, match=r"0 of 3 turns were queued.*queue them all again"):
        fleet.client.enqueue_many(requests(fleet, 3))
    fleet.broker.ensure()
    assert len(fleet.client.enqueue_many(requests(fleet, 3))) == 3


def test_queued_turn_is_cancelled_here_and_now(fleet: Fleet, broker: redis.Redis) -> None:
    turn_id = fleet.client.enqueue(fleet.request())
    assert fleet.client.cancel(turn_id)
    assert not fleet.client.cancel(turn_id)
    result = fleet.client.result(turn_id)
    assert result.error is not None
    assert (result.status, result.error.kind, result.attempts) == (Status.CANCELLED, "turn_cancelled", 0)
    assert broker.llen(QUEUE) == 1  # no second message


def test_parked_turn_is_cancelled_without_a_message(fleet: Fleet, broker: redis.Redis) -> None:
    fleet.ledger.queue.submit_many([fleet.request(turn_id="parked")], 1.0)
    claim = claim_turn(fleet.ledger, "parked", "somebody", 1.0, 60.0)
    assert isinstance(claim, Claim)
    fleet.ledger.queue.wait(claim, 1e12, "rate_limited", 1.0)
    assert fleet.client.cancel("parked")
    assert fleet.client.result("parked").status is Status.CANCELLED
    assert broker.llen(QUEUE) == 0


def test_running_turn_is_left_to_its_worker_to_end(fleet: Fleet) -> None:
    fleet.ledger.queue.submit_many([fleet.request(turn_id="running")], 1.0)
    claim_turn(fleet.ledger, "running", "somebody", 1.0, 60.0)
    assert fleet.client.cancel("running")
    assert fleet.ledger.reports.turn("running").cancel_requested
    with pytest.raises(ResultTimeout, match="it is still running"):
        fleet.client.result("running", timeout_s=0.1)


def test_unknown_turn_cannot_be_cancelled(fleet: Fleet) -> None:
    with pytest.raises(UnknownTurn):
        fleet.client.cancel("never-heard-of")


def test_events_go_on_from_where_somebody_left(fleet: Fleet, recording: Path) -> None:
    fleet.start_worker()
    turn_id = fleet.client.enqueue(fleet.recorded(recording))
    everything = list(fleet.client.events(turn_id))
    assert [event["seq"] for event in everything] == list(range(1, len(everything) + 1))
    assert list(fleet.client.events(turn_id, after=3)) == everything[3:]


def test_threads_that_wait_for_tasks_share_no_subscription(fleet: Fleet) -> None:
    """Else one that begins as another does overwrites it, and that one never hears of its result."""
    app = create_app(fleet.broker.url)
    with ThreadPoolExecutor(2) as pool:
        both = threading.Barrier(2)
        consumers = list(pool.map(lambda _: (both.wait(), app.backend.result_consumer)[1], range(2)))
    assert consumers[0] is not consumers[1]


def test_client_may_be_shared_between_threads(fleet: Fleet, broker: redis.Redis) -> None:
    client = Client(create_app(fleet.broker.url), fleet.ledger)
    wanted = requests(fleet, 80)

    def producer(mine: list[TurnRequest]) -> None:
        client.enqueue_many(mine)

    threads = [threading.Thread(target=producer, args=(wanted[start::4],)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert broker.llen(QUEUE) == fleet.ledger.reports.queue_depths()[State.QUEUED] == 80
