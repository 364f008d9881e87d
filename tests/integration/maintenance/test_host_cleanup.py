"""What turns leave behind on hosts is removed, and no usage is lost with it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, NoReturn

import pytest

from adapters.claude_code.session_files import session_files
from adapters.command import Command
from adapters.contract import Session
from adapters.errors import HostLost
from adapters.protocol.request import TurnRequest
from adapters.registry import Registry
from adapters.replay_agent import ReplayAgent
from adapters.usage import NO_USAGE, Tokens, Usage, UsageSource
from ops.errors import LedgerUnavailable
from ops.ledger import Attempt, AttemptEnd, Claim
from ops.ledger.schema import turns
from ops.metrics import WorkerMetrics, new_registry
from remote.errors import HostAuthFailed, HostError, HostUnreachable
from remote.follower import Follower
from remote.host import Channel
from tests.support.fleets.site import Killed, Site
from tests.support.places import RECORDINGS
from tests.support.processes import of_turns, signed, until_at_rest
from tests.support.recordings.claude_code import load
from tests.support.waiting import until
from tests.system.test_crash_points import Death
from workers.context import WorkerContext
from workers.hosts.inventory import Hosts, TurnHost
from workers.maintenance.host_cleanup import keep_tidy, tidy
from workers.results import refused

DAY = 86_400
SESSION = "2b8cf377-4039-40ad-8a81-408238c68a23"
KILLED = "2.1.330/n_SIGKILL_midtool"  # without a report, so that its session files have to tell its usage
REPORTED = "2.1.330/a_parallel"
BILL = load(KILLED).bill

# Adds its records to the session file, prints its output, and ends, is killed, or goes on.
AGENT = """
records=$1 file=$HOME/.claude/projects/p/$2.jsonl output=$3
mkdir -p "${file%/*}"
cat "$records" >>"$file"
cat "$output"
case $4 in
killed) kill -KILL $$ ;;
hanging) sleep 600 ;;
esac
"""


class Keeping(ReplayAgent):
    """An agent that replays a recording and keeps session files. Its option `speed` is no use to it."""

    name = "keeping"

    def __init__(self, recorded: Any, end: str = "killed") -> None:
        super().__init__(recorded)
        self.end = end

    def build(self, request: TurnRequest, session: Session) -> Command:
        """See `Adapter.build`."""
        output = Path(str(request.options["recording"]))
        records = output.with_name(f"{output.stem}.session.jsonl")
        argv = ("sh", "-c", AGENT, "agent", str(records), session.session_id, str(output), self.end)
        command = replace(super().build(request, session), argv=argv)
        return replace(command, session_files=session_files(session.session_id))


class Stage:
    """A site with an agent that keeps session files, and attempts that their workers could not read."""

    def __init__(self, root: Path) -> None:
        self.site = Site(root)
        self.ledger = self.site.ledger
        known = self.site.worker().registry
        self.agent = Keeping(known.get("claude-code"))
        self._registry = Registry([*known, self.agent])

    def worker(self, hook: Callable[[str], None] = lambda _: None) -> WorkerContext:
        """Another worker."""
        return replace(self.site.worker(hook), registry=self._registry)

    @property
    def host(self) -> TurnHost:
        """The only host."""
        return self.site.worker().hosts.get("local")

    @property
    def spools(self) -> list[str]:
        """What is left on it."""
        return sorted(place.name for place in self.site.spool.iterdir()) if self.site.spool.exists() else []

    def begin(self, recording: str = KILLED, **fields: Any) -> tuple[Claim, Attempt]:
        """A new turn with an attempt in SESSION."""
        path = RECORDINGS / f"{recording}.jsonl"
        turn_id = self.site.queue(**{"agent": "keeping", "options": {"recording": str(path)}, **fields})
        return self.again(turn_id)

    def again(self, turn_id: str, host: str = "local", session: str = SESSION) -> tuple[Claim, Attempt]:
        """The turn's next attempt."""
        claim, now = self.site.claim(turn_id), self.site.now()
        agent, workspace = claim.request.agent, claim.request.workspace
        self.ledger.sessions.lock(claim, session, agent=agent, host=host, workspace=workspace, now=now)
        number = len(claim.attempts) + 1
        attempt = self.ledger.queue.begin_attempt(
            claim,
            host=host,
            spool_id=f"{turn_id}.{number}",
            session_id=session,
            resume=number > 1,
            now=now,
        )
        assert isinstance(attempt, Attempt)
        return claim, attempt

    def follow(self, claim: Claim, attempt: Attempt) -> Follower:
        """The start of an attempt's agent."""
        adapter = self._registry.get(claim.request.agent)
        command = adapter.build(claim.request, Session(attempt.session_id or "", attempt.resume))
        return Follower(self.host.host, self.host.spool(attempt.spool_id, attempt.seal), command)

    async def play(self, claim: Claim, attempt: Attempt) -> None:
        """Let the agent run to its end, which nobody looks into."""
        async with self.follow(claim, attempt) as turn:
            async for _ in turn:
                pass
        self.until_ended(attempt)

    def until_ended(self, attempt: Attempt) -> None:
        """The host notes the end a moment after it has said so."""
        until_at_rest(self.site.spool, attempt.spool_id)
        assert (self.site.spool / attempt.spool_id / "end").read_text().strip()

    def give_up(self, claim: Claim, attempt: Attempt, used: Usage = NO_USAGE) -> None:
        """Close the attempt and its turn, as after a host was out of reach for too long."""
        ended = AttemptEnd(attempt.attempt, used, HostLost.kind)
        result = refused(claim.turn_id, HostLost(), attempts=attempt.attempt, usages=[used])
        self.ledger.queue.settle(claim, result, self.site.now(), ended)

    async def lose(self, recording: str = KILLED, **fields: Any) -> Attempt:
        """A turn whose agent ended while its host was out of reach for too long."""
        claim, attempt = self.begin(recording, **fields)
        await self.play(claim, attempt)
        self.give_up(claim, attempt)
        return attempt

    async def tidy(self, hook: Callable[[str], None] = lambda _: None) -> None:
        """One visit of a new worker."""
        await tidy(self.worker(hook), self.host)

    def booked(self, attempt: Attempt) -> Usage:
        """What the ledger has of an attempt."""
        return self.ledger.accounting.usage_of(attempt.turn_id)[attempt.attempt]

    def observed(self) -> dict[str, Tokens]:
        """All that was ever booked, but estimates."""
        return {row.model: row.tokens for row in self.ledger.reports.totals().models if row.observed}

    def age(self, spool_id: str, seconds: int) -> None:
        """Nobody has followed this spool for so long."""
        then = time.time() - seconds
        os.utime(self.site.spool / spool_id / "heartbeat", (then, then))


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.site.close()
    until(lambda: not of_turns(stage.site.spool), "all agents to be gone")


def tokens(usage: Usage) -> dict[str, Tokens]:
    return {model: used.tokens for model, used in usage.by_model.items()}


# -- late usage


def test_usage_of_a_host_that_came_back_is_booked_and_its_spool_goes(stage: Stage) -> None:
    async def come_back() -> Attempt:
        attempt = await stage.lose()
        assert stage.booked(attempt) == NO_USAGE
        await stage.tidy()
        return attempt

    attempt = asyncio.run(come_back())
    booked = stage.booked(attempt)
    assert (tokens(booked), booked.source) == (BILL, UsageSource.SESSION_FILES)
    assert stage.observed() == BILL
    assert stage.spools == []


def test_agents_own_report_is_late_usage_too(stage: Stage) -> None:
    """It came to its end while its host was out of reach."""
    stage.agent.end = "by itself"

    async def come_back() -> Attempt:
        attempt = await stage.lose(REPORTED)
        await stage.tidy()
        return attempt

    booked = stage.booked(asyncio.run(come_back()))
    assert (tokens(booked), booked.source) == (load(REPORTED).bill, UsageSource.RESULT)
    assert stage.spools == []


def test_two_workers_that_read_the_same_spool_book_it_once(stage: Stage) -> None:
    both = threading.Barrier(2, timeout=60)

    def meet(point: str) -> None:
        if point == "before accounting.amend":
            both.wait()

    async def come_back() -> None:
        await stage.lose()
        await asyncio.gather(stage.tidy(meet), stage.tidy(meet))

    asyncio.run(come_back())
    assert stage.observed() == BILL
    assert stage.spools == []


@pytest.mark.parametrize("when", ["before", "after"])
def test_worker_killed_between_booking_and_removal_has_done_no_harm(stage: Stage, when: str) -> None:
    async def die_and_come_back() -> None:
        attempt = await stage.lose()
        with pytest.raises(Killed):
            await stage.tidy(Death(f"{when} accounting.amend"))
        assert stage.spools == [attempt.spool_id]
        assert stage.booked(attempt).source.observed == (when == "after")
        await stage.tidy()

    asyncio.run(die_and_come_back())
    assert stage.observed() == BILL
    assert stage.spools == []


def test_spool_that_knows_no_better_goes_and_the_estimate_stays(stage: Stage) -> None:
    guess = Usage({}, UsageSource.STREAM, complete=False)

    async def come_back() -> Attempt:
        silent = RECORDINGS / "n4_SIGINT_at_startup.jsonl"
        claim, attempt = stage.begin(agent="scripted", options={"recording": str(silent)})
        await stage.play(claim, attempt)
        stage.give_up(claim, attempt, guess)
        await stage.tidy()
        return attempt

    assert stage.booked(asyncio.run(come_back())) == guess
    assert stage.observed() == {}
    assert stage.spools == []


def test_answers_that_a_spool_has_are_booked_without_session_files(stage: Stage) -> None:
    async def come_back() -> Attempt:
        claim, attempt = stage.begin(agent="scripted", options={"recording": str(RECORDINGS / f"{KILLED}.jsonl")})
        await stage.play(claim, attempt)
        stage.give_up(claim, attempt, Usage({}, UsageSource.STREAM, complete=False))
        await stage.tidy()
        return attempt

    booked = stage.booked(asyncio.run(come_back()))
    assert (booked.tokens, booked.source) == (Tokens(100, 1, 30, 4), UsageSource.SESSION_FILES)
    assert not booked.complete
    assert stage.spools == []


def test_usage_of_a_turn_that_was_lost_with_its_supervisor_is_booked(stage: Stage) -> None:
    """As after the host was out of memory. What is left of the turn is ended, too."""
    stage.agent.end = "hanging"

    async def come_back() -> None:
        claim, attempt = stage.begin()
        async with stage.follow(claim, attempt) as turn:
            await anext(turn)
        spool = stage.site.spool / attempt.spool_id
        for pid in [signed(spool, name) for name in ("supervisor", "watcher")]:
            os.kill(pid, signal.SIGKILL)
        stage.give_up(claim, attempt)
        while stage.spools:  # the end is noted a moment after it was read
            await stage.tidy()

    asyncio.run(come_back())
    assert stage.observed() == BILL


@pytest.mark.parametrize("who", ["another turn", "its own next attempt"])
def test_usage_of_whoever_went_on_in_the_session_is_not_booked_twice(stage: Stage, who: str) -> None:
    async def go_on() -> tuple[Attempt, Attempt]:
        claim, attempt = stage.begin()
        await stage.play(claim, attempt)
        if who == "another turn":
            stage.give_up(claim, attempt)
            later, second = stage.begin()
        else:
            ended = AttemptEnd(attempt.attempt, NO_USAGE, HostLost.kind)
            stage.ledger.queue.wait(claim, stage.site.now(), HostLost.kind, stage.site.now(), ended)
            later, second = stage.again(claim.turn_id)
        await stage.play(later, second)
        stage.give_up(later, second, Usage({}, UsageSource.SESSION_FILES))
        await stage.tidy()
        return attempt, second

    first, _ = asyncio.run(go_on())
    assert stage.booked(first) == NO_USAGE
    assert stage.observed() == {}
    assert stage.spools == []


def test_next_attempt_elsewhere_does_not_stand_in_the_way(stage: Stage) -> None:
    async def come_back() -> Attempt:
        claim, attempt = stage.begin()
        await stage.play(claim, attempt)
        ended = AttemptEnd(attempt.attempt, NO_USAGE, HostLost.kind)
        stage.ledger.queue.wait(claim, stage.site.now(), HostLost.kind, stage.site.now(), ended)
        claim = stage.site.claim(claim.turn_id)
        begun = stage.ledger.queue.begin_attempt(
            claim, host="far", spool_id="far", session_id="another", resume=False, now=stage.site.now()
        )
        assert isinstance(begun, Attempt)
        stage.give_up(claim, begun)
        await stage.tidy()
        return attempt

    assert tokens(stage.booked(asyncio.run(come_back()))) == BILL


# -- what is left alone


def test_spool_of_an_open_attempt_is_untouched(stage: Stage) -> None:
    async def look() -> Attempt:
        claim, attempt = stage.begin()
        await stage.play(claim, attempt)
        stage.age(attempt.spool_id, 30 * DAY)
        await stage.tidy()
        return attempt

    attempt = asyncio.run(look())
    assert stage.spools == [attempt.spool_id]
    assert stage.ledger.accounting.usage_of(attempt.turn_id) == {}


def test_agent_that_runs_beside_its_turns_next_attempt_raises_the_alarm(stage: Stage) -> None:
    """This must never be: here, the ledger was told that the first attempt had ended."""
    stage.agent.end = "hanging"
    registry = new_registry()
    looker = replace(stage.worker(), metrics=WorkerMetrics(registry))

    async def look() -> None:
        claim, attempt = stage.begin()
        async with stage.follow(claim, attempt) as turn:
            await anext(turn)
            await tidy(looker, stage.host)
            assert registry.get_sample_value("runturn_duplicate_runs_total") == 0
            now = stage.site.now()
            stage.ledger.queue.wait(claim, now, HostLost.kind, now, AttemptEnd(1, NO_USAGE, HostLost.kind))
            await tidy(looker, stage.host)
            assert registry.get_sample_value("runturn_duplicate_runs_total") == 0  # nothing came after it yet
            stage.again(claim.turn_id)
            await tidy(looker, stage.host)
            await turn.cancel()
            async for _ in turn:
                pass

    asyncio.run(look())
    assert registry.get_sample_value("runturn_duplicate_runs_total") == 1


def test_agent_that_still_runs_is_untouched(stage: Stage) -> None:
    """Its worker may be out, and its lease not over."""
    stage.agent.end = "hanging"

    async def look() -> None:
        claim, attempt = stage.begin()
        async with stage.follow(claim, attempt) as turn:
            await anext(turn)
            stage.give_up(claim, attempt)
            stage.age(attempt.spool_id, 30 * DAY)
            await stage.tidy()
            assert stage.spools == [attempt.spool_id]
            assert of_turns(stage.site.spool)
            assert stage.booked(attempt) == NO_USAGE
            await turn.cancel()
            async for _ in turn:
                pass
        stage.until_ended(attempt)
        await stage.tidy()

    asyncio.run(look())
    assert stage.observed() == BILL
    assert stage.spools == []


async def foreign(stage: Stage, spool_id: str) -> None:
    """A turn of another installation, which shares the host."""
    command = Command(("true",), str(stage.site.workspace))
    async with Follower(stage.host.host, stage.host.spool(spool_id, "theirs"), command) as turn:
        async for _ in turn:
            pass
    until_at_rest(stage.site.spool, spool_id)
    assert (stage.site.spool / spool_id / "end").read_text().strip()


def test_unknown_spools_and_drafts_stay_until_they_are_old(stage: Stage) -> None:
    async def look() -> None:
        for name in ("old", "young"):
            await foreign(stage, name)
        stage.age("old", 8 * DAY)
        stage.age("young", 6 * DAY)
        for name, days in ((".old.1.Ab3dEf", 8), (".young.1.Ab3dEf", 6)):
            (stage.site.spool / name).mkdir()
            (stage.site.spool / name / "events").touch()
            then = time.time() - days * DAY
            os.utime(stage.site.spool / name, (then, then))
        await stage.tidy()

    asyncio.run(look())
    assert stage.spools == [".young.1.Ab3dEf", "young"]


def test_spool_of_another_host_that_shares_the_directory_is_left_to_that_one(stage: Stage) -> None:
    async def look() -> str:
        claim, attempt = stage.again(stage.site.queue(agent="keeping"), host="far")
        await foreign(stage, attempt.spool_id)
        stage.give_up(claim, attempt, Usage({}, UsageSource.RESULT))
        await stage.tidy()
        return attempt.spool_id

    spool_id = asyncio.run(look())
    assert stage.spools == [spool_id]


def test_spool_that_cannot_be_read_holds_up_no_other_and_goes_when_it_is_old(stage: Stage) -> None:
    async def look() -> None:
        await stage.lose()
        claim, unreadable = stage.again(stage.site.queue(agent="nobody-knows"), session="another")
        await foreign(stage, unreadable.spool_id)
        stage.give_up(claim, unreadable)
        await stage.tidy()
        assert stage.spools == [unreadable.spool_id]
        stage.site.later += 8 * DAY
        await stage.tidy()

    asyncio.run(look())
    assert stage.observed() == BILL
    assert stage.spools == []


def test_request_that_only_a_newer_runturn_can_read_holds_up_no_other_spool(stage: Stage, log: Log) -> None:
    """In a rolling deploy: its spool waits for a worker that can read it."""

    async def look() -> Attempt:
        await stage.lose()
        claim, newer = stage.again(stage.site.queue(agent="keeping"), session="another")
        await foreign(stage, newer.spool_id)
        stage.give_up(claim, newer)
        stored = json.dumps(claim.request.model_dump(mode="json") | {"colour": "green"})
        with stage.ledger._database.write() as connection:
            connection.execute(turns.update().where(turns.c.turn_id == newer.turn_id).values(request=stored))
        await stage.tidy()
        return newer

    newer = asyncio.run(look())
    assert stage.observed() == BILL
    assert stage.spools == [newer.spool_id]
    ((level, line),) = log.lines
    assert level == "warning"
    assert f"'spool': '{newer.spool_id}'" in line
    assert "only a newer runturn can read it: upgrade this worker" in line


# -- rounds


@dataclass
class Fleetwide:
    """A host of which only the connects are seen, on a clock that moves when somebody sleeps."""

    name: str = "far"
    fault: HostError | None = None  # None: it never answers
    resting: tuple[float, float] = (0.0, 0.0)  # from, to
    limit: float = 36_000.0
    now: float = 0.0
    connects: list[float] = field(default_factory=list)
    path: str = ""

    @property
    def rest_s(self) -> float:
        """It is out of reach."""
        begin, end = self.resting
        return end - self.now if begin <= self.now < end else 0.0

    async def open_channel(self) -> Channel:
        """Fail."""
        self.connects.append(self.now)
        if self.fault is None:
            await asyncio.Event().wait()
        assert self.fault is not None
        raise self.fault

    async def close(self) -> None:
        """Nothing is open."""

    async def sleep(self, seconds: float) -> None:
        """Move the clock."""
        self.now += seconds
        if self.now > self.limit:
            raise Enough


class Enough(Exception):
    """The time of a test is over."""


class Log:
    """What would have been logged."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []

    def __getattr__(self, level: str) -> Callable[..., None]:
        return lambda event, **facts: self.lines.append((level, f"{event}: {facts}"))


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    log = Log()
    monkeypatch.setattr("workers.maintenance.host_cleanup.log", log)
    return log


def rounds(stage: Stage, host: Fleetwide, launcher: str = "ssh") -> None:
    """Keep one host tidy for ten hours."""
    hosts = Hosts([TurnHost(host, "/spool", launcher=launcher)])
    worker = replace(stage.worker(), hosts=hosts, monotonic=lambda: host.now, rng=Random(7))
    with pytest.raises(Enough):
        asyncio.run(keep_tidy(worker, host.sleep))


async def until_asleep(worker: WorkerContext, hosts: int) -> None:
    """Keep all hosts tidy until so many have been visited, or passed over."""
    asleep = asyncio.Semaphore(0)

    async def sleep(_: float) -> None:
        asleep.release()
        await asyncio.Event().wait()

    keeping = asyncio.create_task(keep_tidy(worker, sleep))
    async with asyncio.timeout(60):
        for _ in range(hosts):
            await asleep.acquire()
    assert not keeping.done()
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)


def gaps(times: list[float]) -> list[float]:
    return [later - earlier for earlier, later in pairwise(times)]


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> None:
    """All hosts answer, and there is nothing to be done."""

    async def visit(_: WorkerContext, host: TurnHost) -> None:
        assert isinstance(host.host, Fleetwide)
        host.host.connects.append(host.host.now)

    monkeypatch.setattr("workers.maintenance.host_cleanup.tidy", visit)


@pytest.mark.usefixtures("answering")
def test_own_machine_is_visited_every_few_minutes_and_hosts_over_ssh_about_once_an_hour(stage: Stage) -> None:
    own, far = Fleetwide(), Fleetwide()
    rounds(stage, own, "local")
    rounds(stage, far, "ssh")
    assert own.connects[0] == 0.0
    assert 0.0 < far.connects[0] < 300.0
    assert all(150.0 <= gap <= 480.0 for gap in gaps(own.connects))
    assert all(1800.0 <= gap <= 5430.0 for gap in gaps(far.connects))
    assert len(set(gaps(far.connects))) > 1


@pytest.mark.usefixtures("answering")
def test_host_that_was_out_of_reach_is_visited_soon_after_and_not_before(stage: Stage) -> None:
    host = Fleetwide(resting=(500.0, 1500.0))
    rounds(stage, host)
    first, second = host.connects[:2]
    assert first < 300.0
    assert 1500.0 <= second <= 1500.0 + 480.0


def test_host_out_of_reach_is_asked_now_and_then_with_one_warning_each(stage: Stage, log: Log) -> None:
    host = Fleetwide(fault=HostUnreachable("far", "no route"))
    rounds(stage, host)
    assert all(150.0 <= gap <= 480.0 for gap in gaps(host.connects))
    assert [level for level, _ in log.lines] == ["warning"] * len(host.connects)
    assert "no route" in log.lines[0][1]


def test_login_that_was_refused_is_not_tried_again_soon(stage: Stage, log: Log) -> None:
    host = Fleetwide(fault=HostAuthFailed("far", "permission denied"))
    rounds(stage, host)
    assert all(gap >= 1800.0 for gap in gaps(host.connects))
    assert {level for level, _ in log.lines} == {"warning"}


def test_hosts_that_do_not_answer_stop_no_other(stage: Stage, log: Log) -> None:
    silent, refusing = Fleetwide("silent"), Fleetwide("refusing", HostUnreachable("refusing", "no route"))
    resting = Fleetwide("resting", resting=(0.0, 1e9))
    away = [TurnHost(host, "/spool") for host in (silent, refusing, resting)]

    async def keep() -> None:
        await stage.lose()
        worker = replace(stage.worker(), hosts=Hosts([*away, stage.host]))
        await until_asleep(worker, 3)

    asyncio.run(keep())
    assert stage.observed() == BILL
    assert stage.spools == []
    assert (len(silent.connects), len(refusing.connects), len(resting.connects)) == (1, 1, 0)
    assert [level for level, _ in log.lines] == ["warning"]


def test_visit_to_a_host_that_never_answers_comes_to_an_end(
    stage: Stage, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.maintenance.host_cleanup._VISIT_S", 0.01)
    worker = replace(stage.worker(), hosts=Hosts([TurnHost(Fleetwide(), "/spool")]))
    asyncio.run(until_asleep(worker, 1))
    assert log.lines == [("warning", "host cleanup not finished: {'host': 'far', 'error': 'timed out'}")]


def test_ledger_that_is_away_is_waited_for(stage: Stage, log: Log) -> None:
    def away(point: str) -> NoReturn:
        raise LedgerUnavailable(f"{point}: locked")

    async def keep() -> None:
        attempt = await stage.lose()
        await until_asleep(stage.worker(away), 1)
        assert stage.spools == [attempt.spool_id]

    asyncio.run(keep())
    assert [level for level, _ in log.lines] == ["warning"]
