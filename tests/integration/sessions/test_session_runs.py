"""A session of turns goes on until its tests pass, whatever becomes of the workers on the way."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import subprocess
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from adapters.protocol.session_request import SessionRequest
from adapters.protocol.session_result import SessionResult
from adapters.protocol.session_run import first_turn
from ops.ledger import State
from remote.errors import HostUnreachable
from remote.run import Output
from remote.test_command import run_check
from tests.integration.turns.hosts.test_host_faults import running
from tests.support.fleets.site import Killed, Site
from tests.support.ledgers import tasks_of
from tests.support.needs import need
from tests.support.processes import of_turns
from tests.support.waiting import lines_of, until
from tests.system.test_crash_points import Death
from workers.app import SESSION_TASK
from workers.turn.run import Left, Lost, RunTurn
from workers.turn.settlement import Parked
from workers.worker.admission import Admitted, Arrival, Outcome
from workers.worker.claims import OWNER_TTL_S

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")

RUN = "issue-1"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.close()
    until(lambda: not of_turns(site.spool), "all agents and tests to be gone")


def passes_at(count: int) -> str:
    """A test that fails until it has been run so often."""
    return f'echo tried >>tries; echo "seen by the test: $(wc -l <tries)"; test $(wc -l <tries) -ge {count}'


def asked(site: Site, recording: Path, **fields: Any) -> SessionRequest:
    turn = {
        "prompt": "make it pass",
        "workspace": str(site.workspace),
        "agent": "scripted",
        "options": {"recording": str(recording)},
        **fields.pop("turn", {}),
    }
    return SessionRequest.parse({"run_id": RUN, "turn": turn, **fields})


def stands(site: Site) -> SessionResult | None:
    session = site.ledger.session_runs.find(RUN)
    assert session is not None
    return session.result


async def finish(site: Site) -> SessionResult:
    """Have workers work on turn after turn until the session has ended."""
    while (result := stands(site)) is None:
        session = site.ledger.session_runs.find(RUN)
        assert session is not None
        assert session.turn is not None
        await site.finish(session.turn)
    return result


def events(site: Site, turn: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in site.events(f"{RUN}.{turn}")]


def test_turns_follow_until_the_tests_pass(site: Site, recording: Path) -> None:
    request = asked(site, recording, test_commands=[passes_at(3), "true"])
    assert site.ledger.session_runs.submit(request, site.now())
    assert not site.ledger.session_runs.submit(request, site.now())
    result = asyncio.run(finish(site))
    assert (result.status, result.reason) == ("done", "tests_passed")
    assert result.turns == (f"{RUN}.1", f"{RUN}.2", f"{RUN}.3")
    assert [check.exit for check in result.checks] == [0, 0]
    assert result.usage.input_tokens == 3 * 1050
    assert site.starts == 3
    second = site.ledger.reports.request(f"{RUN}.2")
    assert second is not None
    assert "exit code 1" in second.prompt
    assert "seen by the test: 1" in second.prompt
    assert second.session_id == result.session_id
    told = [event for event in events(site, 1) if event["event"] == "check_finished"]
    assert [(event["exit"], event["tail"]) for event in told] == [(1, "seen by the test: 1\n"), (0, "")]
    assert not list(site.spool.iterdir())


def test_all_turns_work_in_the_worktree_that_the_first_one_has_brought(site: Site, recording: Path) -> None:
    git = (need("git"), "-C", str(site.workspace), "-c", "user.name=t", "-c", "user.email=t@localhost")
    for command in (("init", "-q"), ("commit", "-q", "--allow-empty", "-m", "one")):
        subprocess.run([*git, *command], check=True)
    tree = {"repository": str(site.workspace)}
    turn = {"workspace": "", "worktree": tree, "collect": {"patch": True}, "keep_workspace": True}
    site.ledger.session_runs.submit(asked(site, recording, turn=turn, test_commands=[passes_at(2)]), site.now())
    result = asyncio.run(finish(site))
    assert (result.status, result.reason, len(result.turns)) == ("done", "tests_passed", 2)
    second = site.ledger.reports.request(f"{RUN}.2")
    assert second is not None
    assert second.workspace == str(site.root / "workspaces" / f"{RUN}.1" / "workspace")
    assert Path(second.workspace, "tries").read_text() == "tried\n" * 2
    last = site.ledger.reports.result(f"{RUN}.2")
    assert last is not None
    assert last.collected is not None
    assert "+tried\n" in (last.collected.patch or "")  # before the last of the tests


POINTS = (
    "before session_runs.find",
    "after session_runs.find",
    "before accounting.usage_of",
    "before queue.settle",
    "after queue.settle",
)


@pytest.mark.parametrize("point", POINTS)
def test_worker_killed_around_the_tests_is_succeeded(site: Site, recording: Path, point: str) -> None:
    site.ledger.session_runs.submit(asked(site, recording, test_commands=[passes_at(2)]), site.now())

    async def live_twice() -> SessionResult:
        with pytest.raises(Killed):
            await site.work(f"{RUN}.1", Death(point))
        if point == "after queue.settle":
            assert site.ledger.reports.turn(f"{RUN}.2").state is State.QUEUED
        return await finish(site)

    result = asyncio.run(live_twice())
    assert (result.status, result.reason) == ("done", "tests_passed")
    assert site.starts == len(result.turns)  # no agent ran twice
    assert result.usage.input_tokens == len(result.turns) * 1050
    for number, _ in enumerate(result.turns, 1):
        names = [event["event"] for event in events(site, number)]
        assert names[-1] == "turn_settled"
        assert names.count("turn_settled") == names.count("check_finished") == names.count("attempt_ended") == 1
        assert [event["seq"] for event in events(site, number)] == list(range(1, len(names) + 1))


def _live(root: str) -> None:
    """A worker that is a process."""
    asyncio.run(Site(Path(root)).work(f"{RUN}.1"))


def test_worker_killed_in_the_middle_of_a_test_is_succeeded(site: Site, recording: Path) -> None:
    """The next worker ends what is left of the test, and runs it again."""
    command = "echo tried >>tries; if test $(wc -l <tries) = 1; then setsid sleep 600 & sleep 600; fi"
    site.ledger.session_runs.submit(asked(site, recording, test_commands=["true", command]), site.now())
    worker = multiprocessing.get_context("spawn").Process(target=_live, args=(str(site.root),))
    worker.start()
    tries = site.workspace / "tries"
    until(lambda: lines_of(tries), "the test to run")
    worker.kill()
    worker.join()
    site.later += 2 * OWNER_TTL_S  # its clock was as far ahead as a new one of ours
    result = asyncio.run(finish(site))
    assert (result.status, result.reason, len(result.turns), site.starts) == ("done", "tests_passed", 1, 1)
    assert len(tries.read_text().splitlines()) == 2
    assert not of_turns(site.spool)
    names = [event["event"] for event in events(site, 1)]
    assert names.count("session_started") == names.count("attempt_ended") == names.count("turn_settled") == 1
    assert names.count("check_finished") == 2
    assert result.usage.input_tokens == 1050


def test_test_that_takes_too_long_is_ended_with_all_that_it_started(site: Site, recording: Path) -> None:
    command = "echo before; setsid sleep 600 & sleep 600"
    request = asked(site, recording, test_commands=[command], check_timeout_ms=700, max_turns=1)
    site.ledger.session_runs.submit(request, site.now())
    result = asyncio.run(finish(site))
    assert (result.status, result.reason) == ("gave_up", "max_turns")
    assert [(check.exit, check.tail) for check in result.checks] == [(None, "before\n")]
    assert not of_turns(site.spool)


def test_end_of_the_output_is_kept_without_secrets_of_the_turn(
    site: Site, recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_API_KEY", "sk-ant-test-0123456789")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-worker-9876543210")
    counted = "i=0; while [ $i -lt 3000 ]; do echo line $i; i=$((i+1)); done"
    command = f'{counted}; env | grep -c ANTHROPIC; echo "$TEST_API_KEY"; exit 3'
    request = asked(site, recording, turn={"env": ["TEST_API_KEY"]}, test_commands=[command], max_turns=1)
    site.ledger.session_runs.submit(request, site.now())
    (check,) = asyncio.run(finish(site)).checks
    assert check.exit == 3
    lines = check.tail.splitlines()
    assert len(check.tail) <= 4096
    assert lines[-3:-1] == ["line 2999", "0"]
    assert "sk-ant" not in check.tail


def test_worker_that_has_to_leave_in_the_middle_of_a_test_leaves_the_turn_to_the_next_one(
    site: Site, recording: Path
) -> None:
    command = "echo tried >>tries; if test $(wc -l <tries) = 1; then sleep 600; fi"
    site.ledger.session_runs.submit(asked(site, recording, test_commands=[command]), site.now())

    async def leave() -> SessionResult:
        run = RunTurn(site.worker(), site.claim(f"{RUN}.1"))
        running = asyncio.create_task(run.drive())
        await asyncio.to_thread(until, lambda: lines_of(site.workspace / "tries"), "the test to run")
        run.leave()
        assert isinstance(await running, Left)
        return await finish(site)

    result = asyncio.run(leave())
    assert (result.status, len(result.turns), site.starts) == ("done", 1, 1)


def test_worker_that_was_frozen_in_the_middle_of_a_test_leaves_those_of_its_successor_alone(
    site: Site, recording: Path
) -> None:
    first = "sleep 600"
    second = "until test -e go; do sleep 0.1; done"
    command = f"echo tried >>tries; if test $(wc -l <tries) = 1; then {first}; else {second}; fi"
    site.ledger.session_runs.submit(asked(site, recording, test_commands=[command, "true"]), site.now())
    tries = site.workspace / "tries"

    async def outlive() -> None:
        frozen = asyncio.create_task(site.work(f"{RUN}.1"))
        await asyncio.to_thread(until, lambda: lines_of(tries), "the test to run")
        successor = asyncio.create_task(site.work(f"{RUN}.1"))
        assert isinstance(await frozen, Lost)
        await asyncio.to_thread(until, lambda: len(lines_of(tries)) == 2, "the test to run again")
        (site.workspace / "go").touch()
        await successor

    asyncio.run(outlive())
    result = stands(site)
    assert result is not None
    assert [check.exit for check in result.checks] == [0, 0]
    assert (result.status, len(result.turns), site.starts) == ("done", 1, 1)
    assert [event["exit"] for event in events(site, 1) if event["event"] == "check_finished"] == [0, 0]


def test_two_ids_that_would_be_the_same_turn(site: Site, recording: Path) -> None:
    site.queue(turn_id=f"{RUN}.1", options={"recording": str(recording)})
    site.ledger.session_runs.submit(asked(site, recording, test_commands=["true"]), site.now())
    result = stands(site)
    assert result is not None
    assert (result.status, result.reason, result.turns) == ("failed", "invalid_request", ())


def test_ended_sessions_are_forgotten(site: Site, recording: Path) -> None:
    site.ledger.session_runs.admit(asked(site, recording, test_commands=["true"]), "task", site.now())
    asyncio.run(finish(site))
    assert tasks_of(site.ledger, RUN) == {"task"}
    forgotten = site.ledger.retention.forget(site.now() + 1, site.now() + 1)
    assert (forgotten.session_runs, forgotten.turns) == (1, 1)
    assert site.ledger.session_runs.find(RUN) is None
    assert not tasks_of(site.ledger, RUN)


def test_session_cancelled_after_its_worker_was_killed_has_its_events_in_order(
    site: Site, recording: Path
) -> None:
    """The tests were run, and are in the books of events; the successor runs none, because nobody wants them."""
    site.ledger.session_runs.submit(asked(site, recording, test_commands=["false", "false"]), site.now())

    async def cancel_between() -> SessionResult:
        with pytest.raises(Killed):
            await site.work(f"{RUN}.1", Death("before queue.settle"))
        assert site.ledger.session_runs.cancel(RUN, site.now()) == f"{RUN}.1"
        return await finish(site)

    result = asyncio.run(cancel_between())
    assert (result.status, len(result.turns), site.starts) == ("cancelled", 1, 1)
    told = events(site, 1)
    assert [event["seq"] for event in told] == list(range(1, len(told) + 1))
    assert [event["event"] for event in told[-4:]] == ["check_finished"] * 2 + ["attempt_ended", "turn_settled"]
    assert result.usage.input_tokens == 1050


def test_turn_that_cannot_run_ends_the_session(site: Site, recording: Path) -> None:
    request = asked(site, recording, turn={"options": {"speed": 0}}, test_commands=["true"], max_sessions=3)
    site.ledger.session_runs.submit(request, site.now())
    result = asyncio.run(finish(site))
    assert (result.status, result.reason, result.turns) == ("failed", "invalid_request", (f"{RUN}.1",))
    assert site.starts == 0


def test_host_that_cannot_be_reached_for_the_tests_has_them_run_later(
    site: Site, recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The turn is not settled without them, and its agent is not started again."""
    site.ledger.session_runs.submit(asked(site, recording, test_commands=["true"]), site.now())
    fault = [HostUnreachable("local", "cut off by the test")]

    async def cut_off_once(*args: Any, **options: Any) -> Output:
        if fault:
            raise fault.pop()
        return await run_check(*args, **options)

    monkeypatch.setattr("workers.turn.test_commands.run_check", cut_off_once)

    async def come_back() -> SessionResult:
        assert isinstance(await site.work(f"{RUN}.1"), Parked)
        site.later += 60
        return await finish(site)

    result = asyncio.run(come_back())
    assert (result.status, len(result.turns), site.starts) == ("done", 1, 1)
    assert result.usage.input_tokens == 1050


def test_tasks_that_a_killed_worker_left_unanswered_are_answered_by_another_one(
    site: Site, recording: Path
) -> None:
    site.ledger.session_runs.admit(asked(site, recording, test_commands=["true"]), "asked-for-all", site.now())
    asyncio.run(finish(site))
    site.later += 60
    with running(site) as worker:
        assert worker.told("asked-for-all")["run_id"] == RUN
        until(lambda: not tasks_of(site.ledger, RUN), "the task to be noted as told")


def test_message_that_was_revoked_or_has_a_time_limit(site: Site, recording: Path) -> None:
    document = asked(site, recording, test_commands=["true"]).document()
    with running(site) as worker:
        arrivals = (
            Arrival("revoked", {**document, "run_id": "revoked"}, task=SESSION_TASK, revoked=True),
            Arrival("limited", {**document, "run_id": "limited"}, task=SESSION_TASK, timeout_ms=90_000),
        )
        for arrival in arrivals:
            answered: Queue[Outcome] = Queue()
            worker.runtime.admit(arrival, answered.put)
            assert answered.get(timeout=90) == Admitted()
    revoked, limited = site.ledger.session_runs.find("revoked"), site.ledger.session_runs.find("limited")
    assert revoked is not None
    assert revoked.cancel_requested
    assert limited is not None
    assert limited.request is not None
    assert limited.request.deadline_at == pytest.approx(site.now() + 90, abs=30)
    assert site.ledger.reports.request("limited.1") == first_turn(limited.request)
