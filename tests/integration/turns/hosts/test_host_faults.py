"""Faults that must neither run a turn twice nor keep it for ever: of hosts, of configurations, of ourselves."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from queue import Queue
from typing import Any, Self
from unittest import mock

import pytest
from structlog.testing import capture_logs

from adapters.command import Command
from adapters.contract import Judgement, Session
from adapters.errors import HostLost, InvalidRequest
from adapters.protocol.request import TurnRequest
from adapters.protocol.result import Status, TurnResult
from adapters.registry import Registry
from adapters.usage import NO_USAGE, ModelUsage, Tokens, Usage, UsageSource
from ops.ledger import Attempt, AttemptEnd
from ops.redaction import Redactor
from remote.errors import HostError, HostUnreachable, SpawnRefused
from remote.follower import Follower
from remote.host import Channel
from remote.local import LocalHost
from tests.integration.turns.test_ends import hanging
from tests.support.fleets.site import Counted, Hooked, Site
from tests.support.ledgers import tasks_of
from tests.support.processes import end_turns, of_turns, until_at_rest
from tests.support.waiting import until
from workers.app import create_app
from workers.context import WorkerContext
from workers.errors import TurnFailed
from workers.hosts.inventory import Hosts, TurnHost
from workers.limits import LimitWatch
from workers.maintenance.host_cleanup import tidy
from workers.tasks.definitions import define
from workers.tasks.execution import TaskExecutor
from workers.tasks.hub import Hub
from workers.tasks.waiting import WaitingTasks
from workers.turn.leases import OWNER_TTL_S, AgentLease
from workers.turn.run import Left, RunOutcome, RunTurn
from workers.turn.settlement import Parked
from workers.worker.admission import Admitted, Arrival, Outcome, Unreadable
from workers.worker.claims import ClaimKeeper
from workers.worker.loop_lag import LoopLag
from workers.worker.runtime import Runtime

SPENT = Usage({"opus": ModelUsage(Tokens(100, 20), 0.25)}, UsageSource.RESULT)


class Unsteady(LocalHost):
    """This machine, whose connections can be cut, and whose next ones can fail."""

    __slots__ = ("channels", "fault")

    def __init__(self, host: LocalHost) -> None:
        super().__init__(host.env)
        object.__setattr__(self, "channels", [])
        object.__setattr__(self, "fault", None)

    async def open_channel(self) -> Channel:
        """See `Host.open_channel`."""
        if self.fault is not None:
            raise self.fault
        self.channels.append(await super().open_channel())
        return self.channels[-1]

    async def fail(self, fault: HostError) -> None:
        """Cut all connections, and refuse new ones like that."""
        object.__setattr__(self, "fault", fault)
        for channel in self.channels:
            await channel.close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.close()
    end_turns(site.spool)


def on_unsteady_host(site: Site) -> tuple[WorkerContext, Unsteady]:
    worker = site.worker()
    local = worker.hosts.get("local").host
    assert isinstance(local, LocalHost)
    host = Unsteady(local)
    return replace(worker, hosts=Hosts([TurnHost(host, str(site.spool))])), host


def begun(
    site: Site, told: AgentLease | None = None, host: str = "local", *, sent: bool = True, **fields: Any
) -> str:
    """A turn with an open attempt that no worker follows. If it was `sent`, its agent may have been started."""
    turn_id = site.queue(options={"lines": ["{}"]}, host=host, **fields)
    hold = told or AgentLease.by(site.worker().settings.agent)
    claim = site.claim(turn_id)
    attempt = site.ledger.queue.begin_attempt(
        claim, host=host, spool_id=f"{turn_id}.1", session_id=None, resume=False,
        now=site.now(), lease_s=hold.lease_s, stop_grace_s=hold.stop_grace_s,
    )  # fmt: skip
    assert isinstance(attempt, Attempt)
    if sent:
        site.ledger.queue.start(claim)
    return turn_id


async def work_when_due(site: Site, turn_id: str) -> RunOutcome:
    site.later += max(0.0, (site.ledger.reports.turn(turn_id).due_at or 0.0) - site.now())
    return await site.work(turn_id)


async def settle(site: Site, turn_id: str) -> TurnResult:
    while not isinstance(outcome := await work_when_due(site, turn_id), TurnResult):
        assert isinstance(outcome, Parked)
    return outcome


def kind(result: TurnResult) -> str | None:
    return result.error.kind if result.error else None


# -- hosts


def test_fault_on_the_way_back_to_a_host_leaves_its_agent_alone(site: Site, tmp_path: Path) -> None:
    turn_id = site.queue(options={"recording": str(hanging(tmp_path / "r.jsonl", 2))}, on_host_lost="any_host")

    async def come_back() -> None:
        worker, host = on_unsteady_host(site)
        working = asyncio.create_task(RunTurn(worker, site.claim(turn_id)).drive())
        await asyncio.to_thread(until, lambda: len(site.events(turn_id)) > 2, "the turn to be under way")
        await host.fail(HostError("local", "the file of known hosts cannot be read"))
        outcome = await working
        assert isinstance(outcome, Parked)
        assert "known hosts cannot be read" in outcome.reason
        assert site.ledger.hosts.open_attempts() == {"local": 1}
        site.ledger.queue.cancel(turn_id, site.now())
        result = await settle(site, turn_id)
        assert (result.status, result.attempts, site.starts) == (Status.CANCELLED, 1, 1)

    asyncio.run(come_back())


def test_host_that_was_never_asked_to_start_is_unreachable_and_not_lost(site: Site) -> None:
    turn_id = site.queue(options={"lines": ["{}"]}, max_attempts=1, on_host_lost="never")

    async def fail_at_once() -> None:
        worker, host = on_unsteady_host(site)
        await host.fail(HostError("local", "the file of known hosts cannot be read"))
        result = await RunTurn(worker, site.claim(turn_id)).drive()
        assert isinstance(result, TurnResult)
        assert (kind(result), result.usage_complete, site.starts) == ("host_unreachable", True, 0)

    asyncio.run(fail_at_once())


def test_attempt_of_another_worker_that_was_never_sent_is_not_waited_for(site: Site) -> None:
    turn_id = begun(site, sent=False, max_attempts=1, on_host_lost="same_host")

    async def fail_at_once() -> None:
        worker, host = on_unsteady_host(site)
        await host.fail(HostError("local", "the file of known hosts cannot be read"))
        result = await RunTurn(worker, site.claim(turn_id)).drive()
        assert isinstance(result, TurnResult)
        assert (kind(result), result.usage_complete) == ("host_unreachable", True)

    asyncio.run(fail_at_once())


def test_cancelled_attempt_that_was_never_sent_has_cost_nothing(site: Site) -> None:
    turn_id = begun(site, sent=False)
    site.ledger.queue.cancel(turn_id, site.now())
    result = asyncio.run(settle(site, turn_id))
    assert (result.status, result.usage_complete, result.usage.output_tokens) == (Status.CANCELLED, True, 0)


def test_end_whose_usage_the_host_cannot_tell_is_booked_and_its_spool_kept(
    site: Site, recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: object) -> None:
        raise HostError("local", "read_session_files failed with exit 2")

    monkeypatch.setattr("workers.turn.run.judge", fails)
    turn_id = site.queue(options={"recording": str(recording)}, max_attempts=1)
    result = asyncio.run(site.work(turn_id))
    assert isinstance(result, TurnResult)
    assert (kind(result), result.usage_source, result.usage_complete) == ("host_unreachable", "stream", False)
    assert [spool.name for spool in site.spool.iterdir()] == [f"{turn_id}.1"]
    assert site.ledger.hosts.open_attempts() == {}


def test_output_that_cannot_be_read_is_kept_until_the_host_is_tidied(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.turn.attempt.Follower", partial(Follower, max_line=100_000))
    monkeypatch.setattr("workers.maintenance.late_usage.Follower", partial(Follower, max_line=100_000))
    endless = tmp_path / "endless.jsonl"
    endless.write_text("y" * 200_000 + "\n")
    turn_id = site.queue(options={"recording": str(endless)})

    async def read_and_tidy() -> None:
        result = await site.work(turn_id)
        assert isinstance(result, TurnResult)
        assert (kind(result), result.usage_complete) == ("port_exit", False)
        assert [spool.name for spool in site.spool.iterdir()] == [f"{turn_id}.1"]
        await asyncio.to_thread(until_at_rest, site.spool)
        site.later += 3600
        worker = site.worker()
        await tidy(worker, worker.hosts.get("local"))
        assert not list(site.spool.iterdir())

    asyncio.run(read_and_tidy())


def test_spool_shorter_than_what_was_read_is_kept(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a host whose disk was restored: what is left of it may tell the usage."""
    removed: list[object] = []

    async def remove(*spool: object) -> None:
        removed.append(spool)

    monkeypatch.setattr("workers.turn.settlement.remove_spool", remove)
    turn_id = site.queue(options={"recording": str(hanging(tmp_path / "r.jsonl", 2))}, on_host_lost="never")

    async def lose_output() -> None:
        worker, host = on_unsteady_host(site)
        working = asyncio.create_task(RunTurn(worker, site.claim(turn_id)).drive())
        await asyncio.to_thread(until, lambda: len(site.events(turn_id)) > 2, "the turn to be under way")
        os.truncate(site.spool / f"{turn_id}.1" / "events", 0)
        for channel in host.channels:
            await channel.close()
        result = await working
        assert isinstance(result, TurnResult)
        assert (kind(result), result.usage_complete) == ("host_lost", False)
        assert not of_turns(site.spool)

    asyncio.run(lose_output())
    assert not removed


def test_agent_that_was_lost_before_its_first_line_may_have_spent_something(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost(*_: object) -> Judgement:
        return Judgement(HostLost("the turn's supervisor on the host was killed"), NO_USAGE)

    monkeypatch.setattr("workers.turn.run.judge", lost)
    turn_id = site.queue(options={"lines": ["{}"]}, on_host_lost="never")
    result = asyncio.run(site.work(turn_id))
    assert isinstance(result, TurnResult)
    assert (kind(result), result.usage_source, result.usage_complete) == ("host_lost", "none", False)


def test_usage_that_a_host_keeps_failing_to_tell_does_not_keep_a_turn_for_ever(
    site: Site, recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unanswered(*_: object) -> None:
        raise HostUnreachable("local", "no answer for 120 s")

    monkeypatch.setattr("workers.turn.run.judge", unanswered)
    turn_id, began_at = site.queue(options={"recording": str(recording)}, on_host_lost="same_host"), site.now()
    result = asyncio.run(settle(site, turn_id))
    assert (kind(result), result.attempts, result.usage_complete) == ("host_lost", 5, False)
    fence_s = AgentLease.by(site.worker().settings.agent).fence_s
    assert 5 * fence_s < site.now() - began_at < 5 * (fence_s + 60) + 600


def test_host_that_refuses_to_show_a_started_agent_only_keeps_us_out(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(_: Follower) -> Follower:
        raise SpawnRefused("local", "tool_missing", "tail")

    turn_id = begun(site)
    monkeypatch.setattr(Follower, "__aenter__", refuse)
    outcome = asyncio.run(site.work(turn_id))
    assert isinstance(outcome, Parked)
    assert site.ledger.hosts.open_attempts() == {"local": 1}


def test_host_that_refuses_to_show_our_agent_again_only_keeps_us_out(site: Site, tmp_path: Path) -> None:
    turn_id = site.queue(options={"recording": str(hanging(tmp_path / "r.jsonl", 2))})

    async def come_back() -> None:
        worker, host = on_unsteady_host(site)
        working = asyncio.create_task(RunTurn(worker, site.claim(turn_id)).drive())
        await asyncio.to_thread(until, lambda: len(site.events(turn_id)) > 2, "the turn to be under way")
        await host.fail(SpawnRefused("local", "tool_missing", "tail"))
        assert isinstance(await working, Parked)
        assert site.ledger.hosts.open_attempts() == {"local": 1}

    asyncio.run(come_back())


def test_attempt_whose_processes_cannot_be_ended_is_not_repeated(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn_id = begun(site)

    async def fails(*_: object) -> None:
        raise HostError("local", "end_processes failed with exit 1")

    with monkeypatch.context() as patch:
        patch.setattr("workers.turn.salvage.end_processes", fails)
        outcome = asyncio.run(work_when_due(site, turn_id))
    assert isinstance(outcome, Parked)
    assert site.ledger.reports.turn(turn_id).attempts == 1
    assert site.ledger.hosts.open_attempts() == {"local": 1}
    result = asyncio.run(settle(site, turn_id))
    assert (result.attempts, site.starts) == (2, 1)


@pytest.mark.parametrize("end", ["turn_timeout", "turn_cancelled"])
def test_turn_whose_host_does_not_end_it_is_settled(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    async def unheard(_: Follower) -> None:
        """As by a shell that was stopped."""

    monkeypatch.setattr(Follower, "cancel", unheard)
    monkeypatch.setattr(AgentLease, "stop_s", 1.0)
    limit = {"turn_timeout_ms": 3000} if end == "turn_timeout" else {}
    turn_id = site.queue(options={"recording": str(hanging(tmp_path / "r.jsonl", 2))}, **limit)

    async def end_it() -> TurnResult:
        running = RunTurn(site.worker(), site.claim(turn_id))
        working = asyncio.create_task(running.drive())
        await asyncio.to_thread(until, lambda: len(site.events(turn_id)) > 2, "the turn to be under way")
        if end == "turn_cancelled":
            running.cancel()
        result = await working
        assert isinstance(result, TurnResult)
        return result

    result = asyncio.run(end_it())
    assert not of_turns(site.spool), "its agent is gone before the books are closed"
    assert (kind(result), result.attempts, result.usage_complete) == (end, 1, False)
    assert result.error is not None
    assert "host local: it did not report the agent's end within 1 s" in result.error.message
    assert [spool.name for spool in site.spool.iterdir()] == [f"{turn_id}.1"]
    assert site.ledger.hosts.open_attempts() == {}


# -- configurations


def test_turn_on_a_host_that_only_others_know_is_parked_at_once(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def wait(seconds: float) -> None:
        raise AssertionError(f"it waits {seconds} s")

    monkeypatch.setattr("workers.turn.attempt.Follower", partial(Follower, sleep=wait))
    turn_id = begun(site, host="gone")
    outcome = asyncio.run(site.work(turn_id))
    assert isinstance(outcome, Parked)
    assert "host gone: it is not in this worker's configuration; add it to ssh_hosts again" in outcome.reason
    assert site.ledger.reports.turn(turn_id).wait_reason == "host_unreachable"
    assert site.ledger.hosts.open_attempts() == {"gone": 1}


@pytest.mark.parametrize("end", ["cancel", "turn_timeout", "never"])
def test_turn_on_a_host_that_nobody_knows_any_more_can_be_ended(site: Site, end: str) -> None:
    """As after a redeploy that renamed the host. Its agent is held for certain by nobody after the old lease."""
    told = AgentLease(600, 5.0)
    fields = {"turn_timeout": {"turn_timeout_ms": 1}, "never": {"on_host_lost": "never"}}.get(end, {})
    turn_id = begun(site, told, host="gone", **fields)
    began = site.now()
    with running(site) as execute:
        assert isinstance(execute(turn_id), Parked)
    if end == "cancel":
        site.ledger.queue.cancel(turn_id, site.now())
    result = asyncio.run(settle(site, turn_id))
    assert site.now() - began >= told.fence_s > AgentLease.by(site.worker().settings.agent).fence_s
    assert kind(result) == {"cancel": "turn_cancelled", "never": "host_lost"}.get(end, end)
    assert (result.usage_source, result.usage_complete) == ("none", False), "its agent may have spent something"
    assert site.ledger.hosts.open_attempts() == {}


class Narrow(Counted):
    """The agent `scripted` of a worker that does not know the options of a turn."""

    def build(self, request: TurnRequest, session: Session) -> Command:
        """See `Adapter.build`."""
        raise InvalidRequest("there is no such option", field="options.lines")


@pytest.mark.parametrize("gone", ["agent", "option"])
def test_open_attempt_that_no_worker_can_go_on_with_is_ended(site: Site, gone: str) -> None:
    turn_id = begun(site)
    recorded = site.worker().registry.get("claude-code")
    agents = [recorded] if gone == "agent" else [recorded, Narrow(recorded, site.root / "starts")]
    with running(site, registry=Registry(agents)) as execute:
        result = execute(turn_id)
    assert isinstance(result, TurnResult)
    assert (kind(result), result.attempts, result.usage_complete) == ("invalid_request", 1, False)
    assert site.ledger.hosts.open_attempts() == {}
    events = [json.loads(line) for line in site.events(turn_id)]
    assert [event["event"] for event in events] == ["attempt_started", "attempt_ended", "turn_settled"]
    assert [event["seq"] for event in events] == [1, 2, 3]


def test_turn_that_is_refused_later_keeps_the_bill_of_its_attempts(site: Site) -> None:
    turn_id = begun(site)
    claim = site.claim(turn_id)
    site.ledger.queue.wait(claim, site.now(), "overloaded", site.now(), AttemptEnd(1, SPENT, "overloaded"))
    with running(site, registry=Registry([])) as execute:
        result = execute(turn_id)
    assert isinstance(result, TurnResult)
    assert (kind(result), result.attempts, result.cost_usd) == ("invalid_request", 1, 0.25)
    assert result.usage.input_tokens == 100


def test_request_that_cannot_run_here_is_refused_before_an_attempt_is_begun(site: Site) -> None:
    turn_id = site.queue(options={"lines": ["{}"]}, host="moon")
    with running(site) as execute:
        result = execute(turn_id)
    assert isinstance(result, TurnResult)
    assert (kind(result), result.attempts) == ("invalid_request", 0)


# -- ourselves


class running:
    """A worker's runtime on the site's ledger; to be called with a turn that it is to deal with."""

    def __init__(self, site: Site, hook: Callable[[str], None] = lambda _: None, **changes: Any) -> None:
        self._site = site
        self.app = create_app("memory://", "cache+memory://")
        ledger: Any = Hooked(site.ledger, hook)
        executor = TaskExecutor(self.app, Hub(), Redactor({}))
        define(self.app, lambda *_: _unused)
        executor.prepare("worker@here")
        tasks = WaitingTasks(executor, ledger, site.now)
        equipment = replace(site.worker(hook), **changes)
        known = {host.name: host.labels for host in equipment.hosts}
        self.claim_keeper = ClaimKeeper(site.ledger, known, tasks.give_late, site.now)
        self.runtime = Runtime(equipment, tasks, self.claim_keeper, LoopLag())
        self._untidy = mock.patch("workers.worker.runtime.keep_tidy", _keep_untidy)  # or its shells outlive it

    def __enter__(self) -> Self:
        self._untidy.start()
        self.runtime.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.runtime.__exit__(None, None, None)
        self._untidy.stop()

    def __call__(self, turn_id: str) -> RunOutcome:
        former = self._site.ledger.reports.turn(turn_id).due_at
        self._site.later += 60  # nobody has kept the last claim for so long
        self.runtime.resize(1)
        return until(lambda: self._outcome(turn_id, former), "the turn to be dealt with")

    def _outcome(self, turn_id: str, former: float | None) -> RunOutcome | None:
        row = self._site.ledger.reports.turn(turn_id)
        parked = row.wait_reason is not None and row.due_at != former
        return (
            Parked(row.wait_reason or "", row.due_at or 0.0)
            if parked
            else self._site.ledger.reports.result(turn_id)
        )

    def told(self, task_id: str) -> dict[str, Any]:
        """The result that a task was told, whatever it says."""
        answer = self.app.AsyncResult(task_id).get(timeout=90, propagate=False)
        return answer.result if isinstance(answer, TurnFailed) else dict(answer)

    def admit(self, task_id: str, document: object) -> Outcome:
        """Have a message received."""
        answered: Queue[Outcome] = Queue()
        self.runtime.admit(Arrival(task_id, document), answered.put)
        return answered.get(timeout=90)


def _unused(*_: object) -> None:
    """No message comes through a broker here."""


async def _keep_untidy(_: WorkerContext) -> None:
    """See `keep_tidy`."""


def test_turn_whose_limits_cannot_be_looked_at_is_set_aside_and_its_agent_kept(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever comes back to it looks at them again: no agent runs on without its limits."""
    turn_id = site.queue(options={"recording": str(hanging(tmp_path / "r.jsonl", 2))}, max_total_tokens=4000)

    def fail(watch: LimitWatch, now: float) -> None:
        if len(site.events(turn_id)) > 2:
            raise ZeroDivisionError

    with monkeypatch.context() as broken, capture_logs() as logs:
        broken.setattr(LimitWatch, "exceeded", fail)
        outcome = asyncio.run(site.work(turn_id))
    assert isinstance(outcome, Parked)
    assert site.ledger.reports.turn(turn_id).wait_reason == "internal_error"
    assert site.ledger.hosts.open_attempts() == {"local": 1}
    said = [entry["event"] for entry in logs if entry["log_level"] == "error"]
    assert said == ["terminating an attempt failed", "running a turn failed"]
    result = asyncio.run(settle(site, turn_id))
    assert (kind(result), result.attempts, site.starts) == ("budget_exceeded", 1, 1)


def test_fault_that_repeats_settles_the_turn(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    turn_id = site.queue(options={"recording": str(hanging(tmp_path / "r.jsonl", 2))})

    def fail(watch: LimitWatch, now: float) -> None:
        if len(site.events(turn_id)) > 2:
            raise ZeroDivisionError

    monkeypatch.setattr(LimitWatch, "exceeded", fail)
    outcomes = []
    with capture_logs():
        while not isinstance(outcome := asyncio.run(work_when_due(site, turn_id)), TurnResult):
            outcomes.append(outcome)
    assert len(outcomes) == 4
    assert (kind(outcome), outcome.attempts, site.starts) == ("internal_error", 1, 1)
    assert (outcome.usage_complete, outcome.usage.output_tokens > 0) == (False, True)
    assert site.ledger.hosts.open_attempts() == {}


def test_faults_that_do_not_follow_each_other_are_not_counted(site: Site, recording: Path) -> None:
    turn_id = site.queue(options={"recording": str(recording)})
    for _ in range(6):
        claim = site.claim(turn_id)
        site.ledger.queue.wait(claim, site.now(), "internal_error", site.now(), faults=claim.faults + 1)
        site.ledger.queue.wait(site.claim(turn_id), site.now(), "host_busy", site.now())
    assert site.claim(turn_id).faults == 0


def test_turn_whose_settlement_fails_comes_back_more_and_more_rarely(
    site: Site, recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn_id = site.queue(options={"recording": str(recording)})

    def fail(point: str) -> None:
        if point == "before queue.settle":
            raise ZeroDivisionError

    pauses = []
    with capture_logs():
        for _ in range(14):
            site.later += max(0.0, (site.ledger.reports.turn(turn_id).due_at or 0.0) - site.now())
            outcome = asyncio.run(site.work(turn_id, fail))
            assert isinstance(outcome, Parked)
            pauses.append(round((outcome.due_at - site.now()) / 30))
    assert pauses[:4] == [1] * 4
    assert pauses[4:] == [1, 2, 4, 8, 16, 32, 64, 128, 128, 128]
    result = asyncio.run(settle(site, turn_id))
    assert result.attempts == 1


def test_message_that_a_fault_of_ours_kept_from_being_handled_is_logged_and_put_aside(site: Site) -> None:
    def fail(point: str) -> None:
        if point == "before queue.admit":
            raise ValueError("a fault of ours")

    document = site.request(options={"lines": ["{}"]}).model_dump(mode="json", exclude_defaults=True)
    with capture_logs() as logs, running(site, fail) as worker:
        assert isinstance(worker.admit("task", document), Unreadable)
    (entry,) = [entry for entry in logs if entry["log_level"] == "error"]
    assert (entry["task_id"], entry["event"]) == ("task", "a message could not be handled")


def test_faulty_copy_of_a_turn_changes_nothing_and_is_answered_with_it(site: Site) -> None:
    turn_id = site.queue(options={"lines": ["{}"]})
    request = site.ledger.reports.request(turn_id)
    assert request is not None
    document = request.model_dump(mode="json", exclude_defaults=True)
    with running(site) as worker:
        assert worker.admit("copy", document | {"newer_field": True, "turn_id": turn_id}) == Admitted()
        assert site.ledger.reports.turn(turn_id).state == "queued"
        assert tasks_of(site.ledger, turn_id) == {turn_id, "copy"}
        result = worker(turn_id)
        assert isinstance(result, TurnResult)
        assert worker.told("copy")["turn_id"] == turn_id
        assert result.attempts == 1


def test_copy_of_a_settled_turn_is_answered_at_once(site: Site) -> None:
    turn_id = site.queue(options={"lines": ["{}"]})
    request = site.ledger.reports.request(turn_id)
    assert request is not None
    asyncio.run(site.finish(turn_id))
    with running(site) as worker:
        document = request.model_dump(mode="json", exclude_defaults=True)
        assert worker.admit("late", document | {"turn_id": turn_id}) == Admitted()
        assert worker.told("late")["turn_id"] == turn_id
        until(lambda: not tasks_of(site.ledger, turn_id), "the task to be noted as told")
    assert site.ledger.reports.turn(turn_id).state == "settled"


def test_tasks_that_a_killed_worker_left_unanswered_are_answered_by_another_one(site: Site) -> None:
    turn_id = site.queue(options={"lines": ["{}"]})
    request = site.ledger.reports.request(turn_id)
    assert request is not None
    site.ledger.queue.admit(request, "asked", site.now())
    asyncio.run(site.finish(turn_id))
    site.later += 60
    with running(site) as worker:
        assert worker.told("asked")["turn_id"] == turn_id


def test_cancel_that_races_with_the_start_is_carried_out_by_the_next_claim(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes when the host is just being told to start the agent, and so still looks as if it were in time."""
    runs: list[RunTurn] = []

    def racing(*args: Any, lease: Any, **kwargs: Any) -> Any:
        async def starting() -> None:
            await lease.starting()
            runs[0].cancel()

        return Follower(*args, lease=replace(lease, starting=starting), **kwargs)

    turn_id = site.queue(options={"recording": str(hanging(tmp_path / "r.jsonl", 2))})

    async def race() -> None:
        with monkeypatch.context() as patch:
            patch.setattr("workers.turn.attempt.Follower", racing)
            runs.append(RunTurn(site.worker(), site.claim(turn_id)))
            site.ledger.queue.cancel(turn_id, site.now())
            outcome = await runs[0].drive()
        assert isinstance(outcome, Parked), "only a worker that leaves has left a turn"
        assert (site.ledger.reports.turn(turn_id).due_at or 0.0) <= time.time() + site.later
        result = await site.finish(turn_id)
        assert (result.status, result.attempts) == (Status.CANCELLED, 1)

    asyncio.run(race())
    until(lambda: not of_turns(site.spool), "the agent to be gone")


@pytest.mark.parametrize("when", ["before", "after"])
def test_worker_that_leaves_as_it_records_a_start_costs_no_attempt(
    site: Site, recording: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    runs: list[RunTurn] = []

    def leaving(*args: Any, lease: Any, **kwargs: Any) -> Any:
        async def starting() -> None:
            if when == "before":
                asyncio.get_running_loop().call_soon(runs[0].leave)
            await lease.starting()
            if when == "after":
                runs[0].leave()
                await asyncio.Event().wait()  # its host is not told

        return Follower(*args, lease=replace(lease, starting=starting), **kwargs)

    turn_id = site.queue(options={"recording": str(recording)})

    async def leave() -> RunOutcome:
        runs.append(RunTurn(site.worker(), site.claim(turn_id)))
        return await runs[0].drive()

    with monkeypatch.context() as patch:
        patch.setattr("workers.turn.attempt.Follower", leaving)
        assert isinstance(asyncio.run(leave()), Left)
    site.later += OWNER_TTL_S
    result = asyncio.run(settle(site, turn_id))
    assert (result.status, result.attempts, site.starts) == (Status.COMPLETED, 1, 1)
