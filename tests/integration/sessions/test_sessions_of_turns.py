"""Sessions of turns on a real worker: asked for by name, answered, followed and cancelled."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from adapters.protocol.session_request import SessionRequest
from adapters.protocol.session_result import SessionResult
from tests.integration.sessions.test_session_runs import passes_at
from tests.support.fleets.fleet import WAIT_S, Fleet, told
from tests.support.needs import need
from tests.support.places import RECORDINGS
from tests.support.processes import describe, of_turns
from tests.support.waiting import until
from workers.app import SESSION_TASK, create_app
from workers.client.aio import AsyncClient

RECORDING = RECORDINGS / "a_parallel_tools.jsonl"
SESSION = "55335d49-1cc1-427c-9557-f27b71f9023c"  # in it


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with Fleet(tmp_path_factory.mktemp("sessions")) as fleet:
        fleet.start_worker()
        yield fleet
        gc.collect()  # Celery's results unsubscribe when they are collected, and the broker is about to end


def document(fleet: Fleet, run_id: str, *commands: str, **fields: Any) -> dict[str, Any]:
    workspace = fleet.workspace / run_id
    workspace.mkdir()
    recording = workspace / "recording.jsonl"
    recording.write_text(RECORDING.read_text().replace(SESSION, str(uuid.uuid4())))
    turn = {
        "prompt": "make it pass",
        "workspace": str(workspace),
        "agent": "scripted",
        "options": {"recording": str(recording)},
    }
    return {"run_id": run_id, "turn": turn, "test_commands": list(commands), **fields}


def test_session_that_a_producer_asks_for_by_name_is_answered_once(fleet: Fleet) -> None:
    asked = document(fleet, "by-name", passes_at(2))
    app = create_app(fleet.broker.url)
    tasks = [app.send_task(SESSION_TASK, args=[asked], task_id=each, queue="runturn") for each in ("a", "b")]
    answers = [SessionResult.model_validate(task.get(timeout=WAIT_S)) for task in tasks]
    assert answers[0] == answers[1] == fleet.client.session_result("by-name")
    assert (answers[0].status, answers[0].reason) == ("done", "tests_passed")
    assert answers[0].turns == ("by-name.1", "by-name.2")
    again = app.send_task("runturn.run_session", args=[asked], task_id="c", queue="runturn")
    assert SessionResult.model_validate(again.get(timeout=WAIT_S)) == answers[0]
    assert len((fleet.workspace / "by-name" / "tries").read_text().splitlines()) == 2
    shown = fleet.command("result", "by-name")
    assert shown.returncode == 0
    assert "✓ done: tests_passed · 2 turns" in shown.stdout
    text = fleet.command("watch", "by-name", "--format", "markdown")
    assert text.returncode == 0
    assert "**[Bash:" in text.stdout
    assert "exit 1\n```\nseen by the test: 1\n```" in text.stdout
    assert text.stdout.rstrip().endswith("passed")
    fleet.assert_nothing_left()


def test_request_that_makes_no_sense_is_answered(fleet: Fleet) -> None:
    app = create_app(fleet.broker.url)
    asked = {**document(fleet, "refused"), "max_sessions": 0}
    task = app.send_task("runturn.run_session", args=[asked], queue="runturn")
    answer = SessionResult.model_validate(told(task))
    assert (answer.run_id, answer.status, answer.reason) == ("refused", "failed", "invalid_request")
    assert answer.error is not None
    assert "test_commands" in answer.error.message


def test_session_from_the_command_line_is_shown_live(fleet: Fleet) -> None:
    turn = document(fleet, "by-hand")["turn"]
    said = fleet.command(
        "session", "make it pass", "--agent", "scripted", "-o", f"recording={turn['options']['recording']}",
        "-C", turn["workspace"], "--test", passes_at(2), "--max-turns", "3", "--run-id", "by-hand",
    )  # fmt: skip
    assert said.returncode == 0, said.stderr
    assert said.stderr.index("turn by-hand.1") < said.stderr.index("exit 1") < said.stderr.index("turn by-hand.2")
    assert "✓ done: tests_passed · 2 turns" in said.stdout
    request = fleet.ledger.reports.request("by-hand.1")
    assert request is not None
    assert request.prompt == f"make it pass\n\n## Test Commands\n- `{passes_at(2)}`"


def test_cancelled_session_ends_its_tests_and_has_no_further_turn(fleet: Fleet) -> None:
    asked = document(fleet, "cancelled", "setsid sleep 600 & sleep 600", "true")
    fleet.client.enqueue_session(SessionRequest.parse(asked))
    until(lambda: "sleep 600" in describe(of_turns(fleet.state.spool)), "the test to run")
    assert fleet.client.cancel("cancelled")
    result = fleet.client.session_result("cancelled", WAIT_S)
    assert (result.status, result.reason, len(result.turns)) == ("cancelled", "turn_cancelled", 1)
    fleet.assert_nothing_left()
    assert not fleet.client.cancel("cancelled")


def test_asyncio_producers_follow_a_session_as_text(fleet: Fleet) -> None:
    asked = SessionRequest.parse(document(fleet, "async", passes_at(2)))

    async def follow() -> tuple[SessionResult, list[str]]:
        async with AsyncClient(create_app(fleet.broker.url), fleet.ledger) as client:
            run_id = await client.enqueue_session(asked)
            texts = [text async for text in client.transcript(run_id)]
            return await client.run_session(asked, WAIT_S), texts

    result, texts = asyncio.run(follow())
    assert result.status == "done"
    tests = [text.partition("]**")[2].splitlines()[0].strip() for text in texts if text.startswith("**[Test:")]
    assert tests == ["exit 1", "passed"]
    assert texts == list(fleet.client.transcript("async"))


def test_revoked_task_cancels_its_session(fleet: Fleet) -> None:
    app = create_app(fleet.broker.url)
    asked = document(fleet, "revoked", "sleep 600")
    task = app.send_task("runturn.run_session", args=[asked], task_id="theirs", queue="runturn")
    until(lambda: "sleep 600" in describe(of_turns(fleet.state.spool)), "the test to run")
    task.revoke(terminate=True)
    result = fleet.client.session_result("revoked", WAIT_S)
    assert (result.status, len(result.turns)) == ("cancelled", 1)
    fleet.assert_nothing_left()


def test_all_turns_work_in_the_worktree_that_the_first_one_brings(fleet: Fleet) -> None:
    asked = document(fleet, "tree", passes_at(2))
    repository = asked["turn"].pop("workspace")
    git = (need("git"), "-C", repository, "-c", "user.name=t", "-c", "user.email=t@localhost")
    for command in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "one")):
        subprocess.run([*git, *command], check=True)
    asked["turn"] |= {"worktree": {"repository": repository}, "keep_workspace": True}
    result = fleet.client.run_session(SessionRequest.parse(asked), WAIT_S)
    assert (result.status, len(result.turns), result.sessions) == ("done", 2, 1), result.error
    assert result.workspace not in (None, repository)
    tries = Path(result.workspace or "") / "tries"
    assert len(tries.read_text().splitlines()) == 2
    assert not (Path(repository) / "tries").exists()
