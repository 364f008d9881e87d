"""A session of turns goes on until its tests pass, whatever becomes of the workers on the way."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from adapters.session_request import SessionRequest
from adapters.session_result import SessionResult
from ops.ledger import State
from tests.processes import of_turns
from tests.waiting import until
from tests.workers.site import Killed, Site
from tests.workers.test_crash_points import Death

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
    session = site.ledger.session_run(RUN)
    assert session is not None
    return session.result


async def finish(site: Site) -> SessionResult:
    """Have workers work on turn after turn until the session has ended."""
    while (result := stands(site)) is None:
        session = site.ledger.session_run(RUN)
        assert session is not None
        assert session.turn is not None
        await site.finish(session.turn)
    return result


def events(site: Site, turn: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in site.events(f"{RUN}.{turn}")]


def test_turns_follow_until_the_tests_pass(site: Site, recording: Path) -> None:
    request = asked(site, recording, test_commands=[passes_at(3), "true"])
    assert site.ledger.submit_session(request, site.now())
    assert not site.ledger.submit_session(request, site.now())
    result = asyncio.run(finish(site))
    assert (result.status, result.reason) == ("done", "tests_passed")
    assert result.turns == (f"{RUN}.1", f"{RUN}.2", f"{RUN}.3")
    assert [check.exit for check in result.checks] == [0, 0]
    assert result.usage.input_tokens == 3 * 1050
    assert site.starts == 3
    second = site.ledger.request(f"{RUN}.2")
    assert second is not None
    assert "exit code 1" in second.prompt
    assert "seen by the test: 1" in second.prompt
    assert second.session_id == result.session_id
    told = [event for event in events(site, 1) if event["event"] == "check_finished"]
    assert [(event["exit"], event["tail"]) for event in told] == [(1, "seen by the test: 1\n"), (0, "")]
    assert not list(site.spool.iterdir())


POINTS = ("before session_run", "after session_run", "before usage_of", "before settle", "after settle")


@pytest.mark.parametrize("point", POINTS)
def test_worker_killed_around_the_tests_is_succeeded(site: Site, recording: Path, point: str) -> None:
    site.ledger.submit_session(asked(site, recording, test_commands=[passes_at(2)]), site.now())

    async def live_twice() -> SessionResult:
        with pytest.raises(Killed):
            await site.work(f"{RUN}.1", Death(point))
        if point == "after settle":
            assert site.ledger.turn(f"{RUN}.2").state is State.QUEUED
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
