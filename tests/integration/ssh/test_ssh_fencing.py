"""A host that is out of reach: nothing of its turn is started elsewhere before the host has ended it for certain.

Here the workers' clocks jump over the time that they wait for the host; the host's own clock does not.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from adapters.protocol.result import Status, TurnResult
from ops.settings import AgentSettings, Settings
from remote.follower import Follower
from remote.local import LocalHost
from tests.integration.turns.test_ends import hanging
from tests.support.fleets.site import Killed, Site
from tests.support.needs import need
from tests.support.places import RECORDINGS
from tests.support.processes import end_turns
from tests.support.ssh.accounts import own_account
from tests.support.ssh.ssh_logins import Login, Witness
from tests.support.ssh.sshd import Sshd
from tests.support.waiting import remove_spools, until
from tests.system.test_crash_points import Death
from workers.context import WorkerContext
from workers.hosts.inventory import Hosts, TurnHost
from workers.turn.leases import OWNER_TTL_S, AgentLease
from workers.turn.run import RunOutcome, RunTurn
from workers.turn.settlement import Parked

_BEATS_A_LEASE = 12


class TwoHosts:
    """A host over SSH, another one where turns may go, and workers of one process, one after the other."""

    def __init__(self, site: Site, login: Login, monkeypatch: pytest.MonkeyPatch) -> None:
        self.site = site
        self.login = login
        self.agent = AgentSettings(read_timeout_ms=60_000, retry_backoff_ms=1, lease_ms=3_000, stop_grace_ms=1_000)
        self.jumps = True  # whether the clocks jump ahead when somebody waits for a host
        self.pauses = 0  # how often somebody did
        self._ssh = login.host()
        local = site.worker().hosts.get("local").host
        assert isinstance(local, LocalHost)
        self._hosts = Hosts(
            [
                TurnHost(self._ssh, str(login.spools), launcher="ssh"),
                TurnHost(replace(local, name="elsewhere"), str(site.spool)),
            ]
        )
        monkeypatch.setattr("workers.turn.attempt.since_boot", site.now)
        monkeypatch.setattr("workers.turn.attempt.Follower", partial(Follower, sleep=self._pause))

    @property
    def fence_s(self) -> float:
        """How long a host has to be out of reach."""
        return AgentLease.by(self.agent).fence_s

    def worker(self, hook: Callable[[str], None] = lambda _: None) -> WorkerContext:
        """See `Site.worker`."""
        settings = Settings(state_dir=self.site.root, agent=self.agent)
        return replace(self.site.worker(hook), settings=settings, hosts=self._hosts)

    async def work(self, turn_id: str, hook: Callable[[str], None] = lambda _: None) -> RunOutcome:
        """Let one new worker work on the turn, as soon as it is due."""
        due_at = self.site.ledger.reports.turn(turn_id).due_at or 0.0
        self.site.later += max(0.0, due_at - self.site.now())
        return await RunTurn(self.worker(hook), self.site.claim(turn_id)).drive()

    async def finish(self, turn_id: str) -> TurnResult:
        """Let new workers work on the turn until it is settled."""
        while not isinstance(outcome := await self.work(turn_id), TurnResult):
            assert isinstance(outcome, Parked)
        return outcome

    async def lose(self, turn_id: str) -> float:
        """Let a worker begin the turn and lose its host; return when that was, by the workers' clocks."""
        working = asyncio.create_task(self.work(turn_id))
        await self.under_way(turn_id)
        cut_at = self.site.now()
        self.login.sshd.stop()
        assert isinstance(await working, Parked)
        return cut_at

    async def under_way(self, turn_id: str) -> None:
        """Until the turn is in the middle."""
        await asyncio.to_thread(until, lambda: len(self.site.events(turn_id)) > 2, "the turn to be under way")

    async def close(self) -> None:
        """End the connections."""
        await self._ssh.close()

    def events(self, turn_id: str, name: str) -> list[dict[str, Any]]:
        """All events of that name."""
        events = [json.loads(line) for line in self.site.events(turn_id)]
        return [event for event in events if event["event"] == name]

    async def _pause(self, seconds: float) -> None:
        """Somebody who follows a turn waits before the next try."""
        self.pauses += 1
        if self.jumps:
            self.site.later += seconds
        await asyncio.sleep(0.0 if self.jumps else seconds)


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], TwoHosts]]:
    """A fleet is to be made where a loop runs."""
    need("sshd")
    with Sshd() as sshd:
        login = Login(sshd, own_account(), "far", tmp_path / "far")
        site = Site(tmp_path)
        yield lambda: TwoHosts(site, login, monkeypatch)
        site.close()
        login.clean_up()
        end_turns(site.spool)


def run(fleet: Callable[[], TwoHosts], scenario: Callable[[TwoHosts], Awaitable[None]]) -> None:
    """Play a scenario."""

    async def play() -> None:
        made = fleet()
        try:
            await scenario(made)
        finally:
            await made.close()

    asyncio.run(play())


class Recording:
    """A turn that hangs after two lines, until it is made one that ends; agents that run already hang on."""

    def __init__(self, folder: Path) -> None:
        self._path = hanging(folder / "recording.jsonl", 2)
        self.options = {"recording": str(self._path)}

    def heal(self) -> None:
        """The next agent does not hang."""
        self._path.unlink()
        self._path.write_bytes((RECORDINGS / "a_parallel_tools.jsonl").read_bytes())


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    return Recording(tmp_path)


def assert_told(fleet: TwoHosts, turn_id: str, *ends: str | None) -> None:
    """The events tell of every attempt how it ended, and of the turn that it is over."""
    events = [json.loads(line) for line in fleet.site.events(turn_id)]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert [event["error_kind"] for event in fleet.events(turn_id, "attempt_ended")] == list(ends)
    assert len(fleet.events(turn_id, "attempt_started")) == len(ends)
    assert [event["event"] for event in events].index("turn_settled") == len(events) - 1


def in_vain(fleet: TwoHosts, turn_id: str) -> list[str]:
    """How the attempts between the first and the last ended: the host that is away is not left alone for ever."""
    attempts = len(fleet.events(turn_id, "attempt_started"))
    return ["host_unreachable"] * (attempts - 2)


def test_lost_turn_goes_elsewhere_after_the_fence(fleet: Callable[[], TwoHosts], recording: Recording) -> None:
    async def scenario(fleet: TwoHosts) -> None:
        turn_id = fleet.site.queue(on_host_lost="any_host", options=recording.options)
        cut_at = await fleet.lose(turn_id)
        recording.heal()
        result = await fleet.finish(turn_id)
        assert (result.status, result.host) == (Status.COMPLETED, "elsewhere")
        last = fleet.events(turn_id, "attempt_started")[-1]
        assert last["at"] - cut_at >= fleet.fence_s
        assert_told(fleet, turn_id, "host_lost", *in_vain(fleet, turn_id), None)
        lost = fleet.site.ledger.accounting.usage_of(turn_id)[1]
        assert (lost.source, lost.tokens.input_tokens) == ("stream", 1000), "what it had told before the cut"
        assert not result.usage_complete
        assert fleet.site.starts == 2

    run(fleet, scenario)


def test_lost_turn_that_may_not_be_repeated_ends_after_the_fence(
    fleet: Callable[[], TwoHosts], recording: Recording
) -> None:
    async def scenario(fleet: TwoHosts) -> None:
        turn_id = fleet.site.queue(on_host_lost="never", options=recording.options)
        cut_at = await fleet.lose(turn_id)
        result = await fleet.finish(turn_id)
        assert fleet.site.now() - cut_at >= fleet.fence_s
        assert result.error is not None
        assert (result.error.kind, result.attempts, fleet.site.starts) == ("host_lost", 1, 1)
        assert_told(fleet, turn_id, "host_lost")

    run(fleet, scenario)


def test_worker_that_is_killed_while_it_gives_up_is_succeeded(
    fleet: Callable[[], TwoHosts], recording: Recording
) -> None:
    async def scenario(fleet: TwoHosts) -> None:
        turn_id = fleet.site.queue(on_host_lost="never", options=recording.options)
        await fleet.lose(turn_id)
        with pytest.raises(Killed):
            while isinstance(await fleet.work(turn_id, Death("before queue.settle")), Parked):
                pass
        result = await fleet.finish(turn_id)
        assert result.error is not None
        assert (result.error.kind, result.usage_source) == ("host_lost", "stream")
        assert_told(fleet, turn_id, "host_lost")

    run(fleet, scenario)


def test_lost_turn_waits_for_its_host_beyond_the_fence(
    fleet: Callable[[], TwoHosts], recording: Recording
) -> None:
    async def scenario(fleet: TwoHosts) -> None:
        turn_id = fleet.site.queue(on_host_lost="same_host", options=recording.options)
        cut_at = await fleet.lose(turn_id)
        while fleet.site.now() - cut_at < 2 * fleet.fence_s:
            assert isinstance(await fleet.work(turn_id), Parked)
        await asyncio.to_thread(until, lambda: not fleet.login.left(), "the lease to end")
        recording.heal()
        fleet.login.sshd.start()
        fleet.jumps = False
        result = await fleet.finish(turn_id)
        assert (result.status, result.attempts) == (Status.COMPLETED, 2)
        assert_told(fleet, turn_id, "host_lost", None)
        assert fleet.site.starts == 2

    run(fleet, scenario)


def test_lost_turn_that_is_cancelled_is_over_after_the_fence(
    fleet: Callable[[], TwoHosts], recording: Recording
) -> None:
    async def scenario(fleet: TwoHosts) -> None:
        turn_id = fleet.site.queue(options=recording.options)
        cut_at = await fleet.lose(turn_id)
        fleet.site.ledger.queue.cancel(turn_id, fleet.site.now())
        result = await fleet.finish(turn_id)
        assert fleet.site.now() - cut_at >= fleet.fence_s
        assert (result.status, result.attempts, fleet.site.starts) == (Status.CANCELLED, 1, 1)
        assert_told(fleet, turn_id, "turn_cancelled")

    run(fleet, scenario)


def test_fence_counts_from_the_last_contact(fleet: Callable[[], TwoHosts], recording: Recording) -> None:
    async def scenario(fleet: TwoHosts) -> None:
        fleet.agent = fleet.agent.model_copy(update={"lease_ms": 60_000})
        turn_id = fleet.site.queue(on_host_lost="any_host", options=recording.options)
        await fleet.lose(turn_id)
        witness = fleet.login.witness(f"{turn_id}.1")
        fleet.login.sshd.start()
        fleet.jumps = False
        beats = witness.words("heartbeat")
        working = asyncio.create_task(fleet.work(turn_id))
        await asyncio.to_thread(until, lambda: witness.words("heartbeat") != beats, "the next worker's heartbeat")
        fleet.jumps = True
        cut_at = fleet.site.now()
        fleet.login.sshd.stop()
        await working
        recording.heal()
        await fleet.finish(turn_id)
        last = fleet.events(turn_id, "attempt_started")[-1]
        assert last["at"] - cut_at >= fleet.fence_s

    run(fleet, scenario)


def test_host_that_was_never_reached_ends_the_turn_after_its_attempts(
    fleet: Callable[[], TwoHosts], recording: Recording
) -> None:
    async def scenario(fleet: TwoHosts) -> None:
        fleet.login.sshd.stop()
        turn_id = fleet.site.queue(host="far", max_attempts=3, options=recording.options)
        result = await fleet.finish(turn_id)
        assert result.error is not None
        assert (result.error.kind, result.attempts, fleet.site.starts) == ("host_unreachable", 3, 0)
        assert (result.usage_source, result.usage_complete) == ("none", True)
        assert "far" in result.error.message
        assert_told(fleet, turn_id, *["host_unreachable"] * 3)

    run(fleet, scenario)


def test_host_that_was_never_reached_leaves_the_turn_to_another_that_fits(
    fleet: Callable[[], TwoHosts], recording: Recording
) -> None:
    async def scenario(fleet: TwoHosts) -> None:
        fleet.login.sshd.stop()
        recording.heal()
        turn_id = fleet.site.queue(options=recording.options)
        result = await fleet.finish(turn_id)
        assert (result.status, result.host, fleet.site.starts) == (Status.COMPLETED, "elsewhere", 1)
        assert_told(fleet, turn_id, "host_unreachable", *in_vain(fleet, turn_id), None)

    run(fleet, scenario)


def test_host_that_has_forgotten_a_turn_has_lost_it(fleet: Callable[[], TwoHosts], recording: Recording) -> None:
    """As after a reboot that has emptied the directory of its spools."""

    async def scenario(fleet: TwoHosts) -> None:
        turn_id = fleet.site.queue(on_host_lost="never", options=recording.options)
        await fleet.lose(turn_id)
        await asyncio.to_thread(until, lambda: not fleet.login.left(), "the lease to end")
        remove_spools(fleet.login.spools)
        fleet.login.sshd.start()
        fleet.jumps = False
        result = await fleet.finish(turn_id)
        assert result.error is not None
        assert (result.error.kind, result.usage_source) == ("host_lost", "session_files")
        assert_told(fleet, turn_id, "host_lost")

    run(fleet, scenario)


def test_worker_that_may_have_lost_its_claim_starts_nothing(
    fleet: Callable[[], TwoHosts], recording: Recording
) -> None:
    async def scenario(fleet: TwoHosts) -> None:
        fleet.jumps = False
        recording.heal()
        turn_id = fleet.site.queue(options=recording.options)

        def freeze(point: str) -> None:
            if point == "after queue.begin_attempt":
                fleet.site.later += OWNER_TTL_S + 1

        run = RunTurn(replace(fleet.worker(freeze), monotonic=fleet.site.now), fleet.site.claim(turn_id))
        running = asyncio.create_task(run.drive())
        await asyncio.to_thread(until, lambda: fleet.pauses >= 3, "it to hesitate")
        assert not fleet.login.spools.exists()
        assert "Accepted" not in fleet.login.sshd.log()
        run.renewed(fleet.site.now() + 60)
        result = await running
        assert isinstance(result, TurnResult)
        assert (result.status, result.attempts, fleet.site.starts) == (Status.COMPLETED, 1, 1)

    run(fleet, scenario)


@pytest.mark.parametrize("on_host_lost", ["any_host", "never", "same_host"])
def test_worker_that_may_have_lost_its_claim_holds_no_turn_that_others_may_give_up(
    fleet: Callable[[], TwoHosts], recording: Recording, on_host_lost: str
) -> None:
    async def scenario(fleet: TwoHosts) -> None:
        turn_id = fleet.site.queue(on_host_lost=on_host_lost, options=recording.options)
        run = RunTurn(replace(fleet.worker(), monotonic=fleet.site.now), fleet.site.claim(turn_id))
        running = asyncio.create_task(run.drive())
        await fleet.under_way(turn_id)
        fleet.site.later += OWNER_TTL_S + 1
        witness = fleet.login.witness(f"{turn_id}.1")
        if on_host_lost != "same_host":
            await asyncio.to_thread(until, lambda: witness.words("reason") == ["lease"], "the lease to end")
        else:
            enough = _beats(witness) + 2 * _BEATS_A_LEASE
            await asyncio.to_thread(until, lambda: _beats(witness) >= enough, "heartbeats to go on")
            assert not witness.words("reason")
        run.cancel()
        await running

    run(fleet, scenario)


def _beats(witness: Witness) -> int:
    _, count = witness.words("heartbeat") or ("nobody", "0")
    return int(count)
