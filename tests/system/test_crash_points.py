"""A worker that is killed between any two steps leaves a turn that the next one brings to its one result."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from adapters.protocol.result import Status, TurnResult
from ops.errors import LedgerUnavailable
from ops.ledger import State
from remote.follower import Follower
from tests.integration.turns.test_ends import FOR_EVER, hanging
from tests.support.fleets.site import Killed, Site
from tests.support.processes import gone, of_turns, until_at_rest
from tests.support.waiting import remove_spools, until
from workers.maintenance.host_cleanup import tidy
from workers.turn.run import Lost, RunTurn

# Where a worker is killed in its thread that writes events, that thread ends as the whole process would.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")

STEPS = ("sessions.lock", "queue.begin_attempt", "queue.start", "accounting.usage_of", "queue.settle")


class Death:
    """Kills a worker at some point; whatever it tries to do afterwards fails, too."""

    def __init__(self, point: str) -> None:
        self._point = point
        self._dead = False

    def __call__(self, point: str) -> None:
        self._dead = self._dead or point == self._point
        if self._dead:
            raise Killed(point)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.close()
    until(lambda: not of_turns(site.spool), "all agents to be gone")


async def _until_killed(site: Site, turn_id: str, point: str) -> None:
    with pytest.raises(Killed):
        await site.work(turn_id, Death(point))


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", STEPS)
def test_worker_killed_at_any_step_is_succeeded(site: Site, recording: Path, step: str, when: str) -> None:
    turn_id = site.queue(options={"recording": str(recording)})

    async def live_twice() -> None:
        await _until_killed(site, turn_id, f"{when} {step}")
        if (when, step) == ("after", "queue.settle"):
            assert site.ledger.reports.turn(turn_id).state is State.SETTLED
            return
        result = await site.finish(turn_id)
        # Whoever was just about to tell the host to start the agent may have done so.
        unsure = (when, step) == ("after", "queue.start")
        assert (result.status, result.attempts) == (Status.COMPLETED, 2 if unsure else 1)
        assert result.usage_complete is not unsure

    asyncio.run(live_twice())
    assert site.starts == 1
    _assert_booked_once(site, turn_id)


def test_agent_whose_spool_was_removed_under_a_killed_worker_is_not_started_again(
    site: Site, tmp_path: Path
) -> None:
    """Nothing of it is stored yet but its start; the next worker must not take its absence for a start to come."""
    turn_id = site.queue(options={"recording": str(hanging(tmp_path / "r.jsonl", 2))}, max_attempts=1)

    away = True

    def lose_events(point: str) -> None:
        if away and point.startswith("before events.append"):
            raise LedgerUnavailable("it is away")

    async def lose_both() -> None:
        nonlocal away
        worker = asyncio.create_task(site.work(turn_id, lose_events))
        agents = await asyncio.to_thread(until, lambda: site.starts and of_turns(site.spool), "the agent to run")
        worker.cancel()
        await asyncio.wait([worker])
        remove_spools(site.spool / f"{turn_id}.1")
        away = False
        result = await site.finish(turn_id)
        assert (result.error and result.error.kind, result.usage_complete) == ("host_lost", False)
        assert all(map(gone, agents)), "no second agent runs beside the first"

    asyncio.run(lose_both())
    assert site.starts == 1


def _assert_booked_once(site: Site, turn_id: str) -> None:
    events = [json.loads(line) for line in site.events(turn_id)]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    names = [event["event"] for event in events]
    assert names.count("turn_settled") == names.count("session_started") == 1
    result = site.ledger.reports.result(turn_id)
    assert result is not None
    (total,) = site.ledger.reports.totals().models
    assert total.tokens.input_tokens == result.usage.input_tokens == 1050


def test_zombie_does_not_start_an_agent_whose_turn_is_over(site: Site, recording: Path) -> None:
    """Frozen just before it would have started the agent, it wakes up after another one has settled the turn."""
    turn_id = site.queue(options={"recording": str(recording)})
    frozen, thawed = threading.Event(), threading.Event()

    def freeze(point: str) -> None:
        if point == "before queue.start":
            frozen.set()
            assert thawed.wait(60)

    async def outlive() -> None:
        zombie = asyncio.create_task(site.work(turn_id, freeze))
        await asyncio.to_thread(frozen.wait, 60)
        assert (await site.finish(turn_id)).status is Status.COMPLETED
        thawed.set()
        assert isinstance(await zombie, Lost)

    asyncio.run(outlive())
    assert site.starts == 1
    assert not list(site.spool.iterdir())
    _assert_booked_once(site, turn_id)


def test_turn_cancelled_before_its_agent_was_started_never_starts_it(site: Site, recording: Path) -> None:
    turn_id = site.queue(options={"recording": str(recording)})

    async def cancel_between() -> None:
        await _until_killed(site, turn_id, "after queue.begin_attempt")
        site.ledger.queue.cancel(turn_id, site.now())
        result = await site.finish(turn_id)
        assert result.status is Status.CANCELLED

    asyncio.run(cancel_between())
    assert site.starts == 0
    assert not list(site.spool.glob("*"))


def test_stalled_turn_is_no_cancelled_one_for_the_successor(site: Site, tmp_path: Path) -> None:
    """The worker that had the agent ended was killed before it could say why."""
    turn_id = _hanging_turn(site, tmp_path, stall_timeout_ms=300, max_attempts=1)

    async def die_of_it() -> None:
        await _until_killed(site, turn_id, "before queue.settle")
        result = await site.finish(turn_id)
        assert result.error is not None
        assert result.error.kind == "turn_stalled"

    asyncio.run(die_of_it())


def test_worker_that_was_frozen_does_not_take_its_own_silence_for_the_agents(site: Site, tmp_path: Path) -> None:
    turn_id = _hanging_turn(site, tmp_path, stall_timeout_ms=30_000)

    async def wake_up() -> None:
        run = RunTurn(site.worker(), site.claim(turn_id))
        running = asyncio.create_task(run.drive())
        await asyncio.to_thread(until, lambda: len(site.events(turn_id)) > 2, "the turn to be under way")
        site.later += 60  # as after SIGSTOP, or a night with the lid closed
        before = len(site.looks)
        await asyncio.to_thread(until, lambda: len(site.looks) > before + 3, "it to look at its limits again")
        assert not [file for file in site.spool.glob("*/reason") if file.read_text().strip()]
        run.cancel()
        await running

    asyncio.run(wake_up())


def test_command_that_no_shell_could_run_is_refused(
    site: Site, recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNTURN_WELL", "kept for ourselves")
    turn_id = site.queue(options={"recording": str(recording)}, env=["RUNTURN_WELL"])
    result = asyncio.run(site.work(turn_id))
    assert isinstance(result, TurnResult)
    assert result.error is not None
    assert (result.error.kind, site.starts) == ("invalid_request", 0)
    assert "RUNTURN_WELL" in result.error.message


def test_agent_whose_output_cannot_be_read_is_ended(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.turn.attempt.Follower", partial(Follower, max_line=100_000))
    endless = tmp_path / "endless.jsonl"
    endless.write_text("y" * 200_000 + f"\n{FOR_EVER}\n")
    turn_id = site.queue(options={"recording": str(endless)}, max_attempts=1)
    result = asyncio.run(site.work(turn_id))
    assert isinstance(result, TurnResult)
    assert result.error is not None
    assert result.error.kind == "port_exit"
    until(lambda: not of_turns(site.spool), "the agent to be gone")


def test_spools_of_killed_workers_are_removed_and_those_of_open_attempts_are_kept(
    site: Site, recording: Path, tmp_path: Path
) -> None:
    over = site.queue(options={"recording": str(recording)})
    still_open = _hanging_turn(site, tmp_path, stall_timeout_ms=300, max_attempts=1)

    async def tidy_up() -> None:
        await _until_killed(site, over, "after queue.settle")
        await _until_killed(site, still_open, "before queue.settle")
        assert len(list(site.spool.iterdir())) == 2
        await asyncio.to_thread(until_at_rest, site.spool)
        worker = site.worker()
        for host in worker.hosts:
            await tidy(worker, host)
        assert [spool.name for spool in site.spool.iterdir()] == [f"{still_open}.1"]
        await site.finish(still_open)

    asyncio.run(tidy_up())
    assert not list(site.spool.iterdir())


@pytest.mark.parametrize("point", ["after sessions.lock", "after queue.begin_attempt", "before queue.settle"])
def test_session_is_free_once_its_turn_is_over(site: Site, recording: Path, point: str) -> None:
    turn_id = site.queue(options={"recording": str(recording)})

    async def leave_it_behind() -> None:
        await _until_killed(site, turn_id, point)
        site.ledger.queue.cancel(turn_id, site.now())
        await site.finish(turn_id)

    asyncio.run(leave_it_behind())
    with sqlite3.connect(site.root / "ledger.db") as ledger:
        locks = ledger.execute("SELECT locked_by FROM sessions").fetchall()
    assert locks
    assert set(locks) == {(None,)}


def _hanging_turn(site: Site, tmp_path: Path, **fields: Any) -> str:
    return site.queue(options={"recording": str(hanging(tmp_path / "hanging.jsonl", 2))}, **fields)
