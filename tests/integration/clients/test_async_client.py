"""The client for asyncio: its loop never stands still, and thousands may wait."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine
from pathlib import Path
from typing import Any

import pytest
import redis

from adapters.errors import TurnCancelled
from adapters.protocol.result import Status
from ops.errors import LedgerUnavailable, UnknownTurn
from ops.ledger import Ledger
from ops.ledger.ledger import Queue
from tests.support.fleets.fleet import WAIT_S, Fleet, slow_recording
from tests.support.fleets.live_fleet import LiveFleet
from workers.app import create_app
from workers.client import aio
from workers.client.aio import AsyncClient
from workers.errors import BrokerUnavailable, ResultTimeout
from workers.results import refused


def run(work: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(work, WAIT_S)

    asyncio.run(bounded())


def a_client(fleet: Fleet, ledger: Ledger | None = None) -> AsyncClient:
    return AsyncClient(create_app(fleet.broker.url), ledger or fleet.ledger)


def settle(fleet: Fleet, turn_id: str) -> None:
    fleet.ledger.queue.settle_unclaimed(turn_id, refused(turn_id, TurnCancelled("by the test")), time.time())


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    while not await condition():  # the ledger has no event to wait for
        await asyncio.sleep(0.02)


async def waits_for(client: AsyncClient, turns: int) -> None:
    async def so_many() -> bool:
        return len(client._settlements._waiting) == turns

    await eventually(so_many)


def test_turn_is_queued_followed_and_answered(fleet: Fleet, recording: Path) -> None:
    fleet.start_worker()

    async def main() -> None:
        async with a_client(fleet) as client:
            turn_id = await client.enqueue(fleet.recorded(recording))
            events = [event async for event in client.events(turn_id)]
            assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
            assert events == fleet.events(turn_id)
            assert events[-1]["event"] == "turn_settled"
            assert [event async for event in client.events(turn_id, after=3)] == events[3:]
            assert (await client.result(turn_id)).status is Status.COMPLETED
            assert not await client.cancel(turn_id)

    run(main())
    fleet.assert_nothing_left()


def test_many_turns_are_followed_at_once_without_gaps(fleet: Fleet, recording: Path, tmp_path: Path) -> None:
    slow = slow_recording(tmp_path / "slow.jsonl", recording, 100)
    fleet.start_worker()

    async def numbers(client: AsyncClient, turn_id: str) -> list[int]:
        return [event["seq"] async for event in client.events(turn_id)]

    async def main() -> None:
        async with a_client(fleet) as client:
            turn_ids = await client.enqueue_many(fleet.recorded(slow) for _ in range(8))
            seen = await asyncio.gather(*(numbers(client, turn_id) for turn_id in turn_ids for _ in range(2)))
            results = await asyncio.gather(*map(client.result, turn_ids))
        assert all(each == list(range(1, len(each) + 1)) for each in seen)
        assert {result.status for result in results} == {Status.COMPLETED}

    run(main())


def test_events_and_results_are_live(tmp_path: Path, recording: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aio, "POLL_S", 10 * WAIT_S)  # so that nothing but the broker brings news

    async def main(fleet: LiveFleet) -> None:
        async with a_client(fleet) as client:
            with client._feed.listening("other", lambda batch: None):
                assert await asyncio.to_thread(client._feed.subscribed.wait, WAIT_S)
            turn = await asyncio.to_thread(fleet.talking, recording)
            result = asyncio.create_task(client.result(turn))
            names = []
            async for event in client.events(turn):
                names.append(event["event"])
                if names[-1] == "session_started":
                    assert not result.done(), "it goes on"
                    turn.finish()
            assert names[-1] == "turn_settled"
            assert (await result).status is Status.COMPLETED

    with LiveFleet(tmp_path) as fleet:
        fleet.start_worker()
        run(main(fleet))


def test_events_have_no_gaps_when_the_broker_restarts_or_the_reader_is_slow(
    fleet: Fleet, recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aio, "_MOST_WAITING", 1)
    slow = slow_recording(tmp_path / "slow.jsonl", recording, 200)
    fleet.start_worker()

    async def main() -> None:
        async with a_client(fleet) as client:
            turn_id = await client.enqueue(fleet.recorded(slow))
            seen = []
            async for event in client.events(turn_id):
                seen.append(event["seq"])
                if event["event"] == "session_started":
                    await asyncio.to_thread(fleet.broker.stop)
                    await asyncio.to_thread(fleet.broker.ensure)
            assert seen == list(range(1, len(seen) + 1))
            assert (await client.result(turn_id)).status is Status.COMPLETED

    run(main())


def test_thousand_waiting_results_hold_no_thread_each(fleet: Fleet) -> None:
    turn_ids = fleet.client.enqueue_many(fleet.request() for _ in range(1_000))
    before = threading.active_count()

    async def main() -> None:
        async with a_client(fleet) as client:
            waiting = [asyncio.create_task(client.result(turn_id)) for turn_id in turn_ids]
            await waits_for(client, 1_000)
            assert threading.active_count() - before <= 12
            with redis.Redis(unix_socket_path=str(fleet.broker.socket)) as broker:
                assert broker.pubsub_numpat() <= 1
            for turn_id in turn_ids:
                await asyncio.to_thread(settle, fleet, turn_id)
            results = await asyncio.gather(*waiting)
        assert [result.turn_id for result in results] == turn_ids

    run(main())
    assert threading.active_count() <= before + 1  # asyncio's own


def test_waiting_asks_the_ledger_for_all_turns_at_once(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    turn_ids = fleet.client.enqueue_many(fleet.request() for _ in range(50))
    queue, asked = fleet.ledger.queue, []

    def settled(turn_ids: Collection[str]) -> frozenset[str]:
        asked.append(len(turn_ids))
        return Queue.settled(queue, turn_ids)

    monkeypatch.setattr(queue, "settled", settled)

    async def main() -> None:
        async with a_client(fleet) as client:
            waiting = [asyncio.create_task(client.result(turn_id)) for turn_id in turn_ids]
            await waits_for(client, 50)
            for turn_id in turn_ids:
                settle(fleet, turn_id)
            await asyncio.gather(*waiting)

    run(main())
    assert max(asked) == 50
    assert len(asked) < 50


def test_waiting_ends_in_time_and_for_each_by_itself(fleet: Fleet) -> None:
    turn_id = fleet.client.enqueue(fleet.request())

    async def main() -> None:
        async with a_client(fleet) as client:
            with pytest.raises(ResultTimeout, match="it is still running"):
                await client.result(turn_id, timeout_s=0.05)
            impatient, patient = (asyncio.create_task(client.result(turn_id)) for _ in range(2))
            await waits_for(client, 1)
            impatient.cancel()
            assert await client.cancel(turn_id)
            assert (await patient).status is Status.CANCELLED
            assert impatient.cancelled()
            assert not client._settlements._waiting
            with pytest.raises(UnknownTurn):
                await client.cancel("never-heard-of")

    run(main())


def test_closing_ends_those_who_wait(fleet: Fleet) -> None:
    turn_id = fleet.client.enqueue(fleet.request())

    async def main() -> None:
        client = a_client(fleet)
        waiting = asyncio.create_task(client.result(turn_id))
        await waits_for(client, 1)
        await client.close()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    run(main())


def test_ledger_that_is_away_is_told_to_all_who_wait(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    turn_ids = fleet.client.enqueue_many(fleet.request() for _ in range(3))

    def away(turn_ids: Collection[str]) -> frozenset[str]:
        raise LedgerUnavailable("ledger: away")

    async def main() -> None:
        async with a_client(fleet) as client:
            with monkeypatch.context() as patched:
                patched.setattr(fleet.ledger.queue, "settled", away)
                waiting = (client.result(turn_id) for turn_id in turn_ids)
                ended = await asyncio.gather(*waiting, return_exceptions=True)
                assert {type(error) for error in ended} == {LedgerUnavailable}
            settle(fleet, turn_ids[0])
            assert (await client.result(turn_ids[0])).status is Status.CANCELLED  # the next call works

    run(main())


def test_loop_goes_on_while_a_broker_hangs(fleet: Fleet) -> None:
    fleet.ledger.queue.submit_many([fleet.request(turn_id="known")], 1.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.listen()
        app = create_app(f"redis://127.0.0.1:{silent.getsockname()[1]}/0")

        async def main() -> None:
            async with AsyncClient(app, fleet.ledger) as client:
                queueing = [asyncio.create_task(client.enqueue(fleet.request())) for _ in range(8)]
                waiting = asyncio.create_task(client.result("known"))
                await waits_for(client, 1)
                settle(fleet, "known")
                assert (await waiting).status is Status.CANCELLED
                assert not any(task.done() for task in queueing)
                silent.close()

        run(main())


def test_broker_that_is_away_is_told(fleet: Fleet) -> None:
    fleet.broker.stop()

    async def main() -> None:
        async with a_client(fleet) as client:
            with pytest.raises(BrokerUnavailable, match="could not be queued"):
                await client.enqueue(fleet.request())

    run(main())
