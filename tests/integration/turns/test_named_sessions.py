"""Sessions that their agent names itself: from its first event to later attempts and turns."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from adapters.command import Command, SessionFiles
from adapters.contract import Session
from adapters.protocol.request import TurnRequest
from adapters.protocol.result import Status, TurnResult
from adapters.registry import Registry
from adapters.replay_agent import ReplayAgent
from tests.support.fleets.site import Site, claude_code
from tests.support.places import RECORDINGS

DONE = RECORDINGS / "a_parallel_tools.jsonl"
BROKEN = RECORDINGS / "n_SIGTERM_midstream.jsonl"  # the model has answered before


class Naming(ReplayAgent):
    """The agent `scripted`, as one that gives its sessions names: those that its recordings tell."""

    capabilities = replace(ReplayAgent.capabilities, names_sessions=True)
    told: list[Session]

    def build(self, request: TurnRequest, session: Session) -> Command:
        """See `Adapter.build`."""
        self.told.append(session)
        files = SessionFiles("NAMING_HOME", "nowhere", ("none",))
        return replace(super().build(request, session), session_files=files)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    agent = Naming(claude_code())
    agent.told = []
    site._registry = Registry([agent])
    yield site
    site.close()


def told(site: Site) -> list[Session]:
    """The sessions that commands were built for."""
    agent = site._registry.get("scripted")
    assert isinstance(agent, Naming)
    return agent.told


def run(site: Site, recording: Path, exit_code: int = 0, **fields: object) -> TurnResult:
    options = {"recording": str(recording), "exit_code": exit_code}
    return asyncio.run(site.finish(site.queue(options=options, **fields)))


def test_new_session_is_known_by_its_agents_name_once_the_turn_is_settled(site: Site) -> None:
    result = run(site, DONE)
    assert (result.status, told(site)[0]) == (Status.COMPLETED, Session("", resume=False))
    assert result.session_id
    row = site.ledger.sessions.find(result.session_id)
    assert row is not None
    assert (row.agent, row.host, row.locked_by) == ("scripted", "local", None)
    attempt = site.ledger.accounting.by_spool([f"{result.turn_id}.1"])[f"{result.turn_id}.1"]
    assert (attempt.session_id, attempt.resume) == (result.session_id, False)
    assert site.ledger.sessions.find("") is None
    assert site.ledger.reports.turn(result.turn_id).session_id == result.session_id


def test_later_turn_goes_on_in_it(site: Site) -> None:
    first = run(site, DONE)
    later = run(site, DONE, session_id=first.session_id)
    assert later.status is Status.COMPLETED
    assert told(site)[-1] == Session(first.session_id or "", resume=True)


def test_next_attempt_resumes_it_under_its_lock(site: Site) -> None:
    options = {"recording": str(BROKEN), "exit_code": 143}
    turn_id = site.queue(options=options, max_attempts=2)
    holders: list[str | None] = []

    def look(operation: str) -> None:
        attempts = site.ledger.accounting.by_spool([f"{turn_id}.1"])
        if operation == "before queue.settle":
            row = site.ledger.sessions.find(attempts[f"{turn_id}.1"].session_id or "")
            holders.append(row.locked_by if row else None)

    async def work() -> TurnResult:
        while not isinstance(outcome := await site.work(turn_id, look), TurnResult):
            pass
        return outcome

    result = asyncio.run(work())
    assert (result.status, result.attempts) == (Status.CANCELLED, 2)
    rows = site.ledger.accounting.by_spool([f"{turn_id}.1", f"{turn_id}.2"])
    assert [(row.session_id, row.resume) for row in rows.values()] == [
        (result.session_id, False),
        (result.session_id, True),
    ]
    assert holders == [turn_id]
    row = site.ledger.sessions.find(result.session_id or "")
    assert row is not None
    assert row.locked_by is None
