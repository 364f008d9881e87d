"""Which version of its agent an attempt has, and what becomes of turns whose version is known not to work."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from adapters.claude_code.adapter import ClaudeCode
from adapters.contract import Capabilities, Exit, Health
from adapters.protocol.result import TurnResult
from adapters.registry import Registry
from adapters.replay_agent import ReplayAgent
from adapters.toolkit.error_mapping import health_by_version
from adapters.versions import Standing, Unsupported, Versions, verdict_on
from ops.ledger import Attempt
from ops.metrics import Vocabulary, WorkerMetrics, new_registry
from ops.settings import AgentTable
from remote.errors import HostUnreachable
from remote.local import LocalHost
from tests.support.fleets.site import Site
from workers.agents import health as agent_health
from workers.agents import probe as agent_check
from workers.agents.health import AgentHealth
from workers.agents.probe import AgentReport
from workers.context import WorkerContext
from workers.hosts.inventory import Hosts, TurnHost
from workers.turn.run import RunOutcome, RunTurn
from workers.turn.settlement import Parked

VERSIONS = Versions(
    proved=("2.1.330",),
    covers=("success",),
    unsupported=(Unsupported("it says nothing of its end", mended="2.0.0"),),
)
ABLE = Capabilities(
    resume=True, structured_output=False, cost_cap=False, live_output_tokens=False, versions=VERSIONS
)
OLD, NEW, OTHER = "1.0.128 (Aged)", "2.1.330 (Aged)", "2.1.50"


class Aged(ReplayAgent):
    """A replay with versions: each host has a file of its own that says which."""

    name = "aged"
    capabilities = ABLE

    def __init__(self) -> None:
        super().__init__(ClaudeCode())
        self.looks = 0

    def probe(self) -> tuple[str, ...]:
        """See `Adapter.probe`."""
        return ("sh", "-c", 'cat "$HOME/version"')

    def health(self, end: Exit, stdout: str) -> Health:
        """See `Adapter.health`."""
        self.looks += 1
        return health_by_version(end, stdout, "aged", "Aged")


@dataclass
class Worker:
    """A worker of a site, whose agent is aged; its clock for looks stands still."""

    site: Site
    equipment: WorkerContext
    agent: Aged
    samples: Any
    now: float = 0.0

    def work(self, turn_id: str) -> RunOutcome:
        """Let it work on a turn."""
        return asyncio.run(RunTurn(self.equipment, self.site.claim(turn_id)).drive())

    def run(self, recording: list[str], **fields: Any) -> TurnResult:
        """A turn, to its result."""
        outcome = self.work(self.queued(recording, **fields))
        assert isinstance(outcome, TurnResult), outcome
        return outcome

    def queued(self, recording: list[str], **fields: Any) -> str:
        """A turn that waits."""
        return self.site.queue(**{"agent": "aged", "options": {"lines": recording}, **fields})

    def attempts(self, turn_id: str) -> list[tuple[str, str | None]]:
        """Hosts and versions."""
        return [(attempt.host, attempt.agent_version) for attempt in self.site.claim(turn_id).attempts]

    def seen(self, version: str, standing: Standing, host: str = "local") -> float | None:
        """The metric."""
        labels = {"agent": "aged", "host": host, "version": version, "standing": str(standing)}
        return self.samples.get_sample_value("runturn_agent_info", labels)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.close()


@pytest.fixture
def recording() -> list[str]:
    """A turn that says nothing but that it is there, and done."""
    started = {"type": "system", "subtype": "init", "session_id": "s1", "model": "m"}
    report = {"type": "result", "subtype": "success", "is_error": False, "result": "done", "num_turns": 1}
    return [json.dumps(started), json.dumps({**report, "stop_reason": "end_turn"})]


def host(site: Site, name: str, version: str, **fields: Any) -> TurnHost:
    """A host that has this version."""
    home = site.root / name
    home.mkdir(exist_ok=True)
    (home / "version").write_text(f"{version}\n")
    return TurnHost(
        LocalHost({"PATH": os.environ["PATH"], "HOME": str(home)}, name), str(home / "spool"), **fields
    )


def worker(site: Site, *hosts: TurnHost, **table: Any) -> Worker:
    agent, samples = Aged(), new_registry()
    agents = Registry([agent])
    equipment = site.worker()
    worker = Worker(site, equipment, agent, samples)
    worker.equipment = replace(
        equipment,
        registry=agents,
        hosts=Hosts(hosts),
        health=AgentHealth(lambda: worker.now),
        metrics=WorkerMetrics(samples, Vocabulary(agents)),
        settings=equipment.settings.model_copy(update={"agents": {"aged": AgentTable(**table)}}),
    )
    return worker


def test_version_of_the_host_is_noted_wherever_people_look(site: Site, recording: list[str]) -> None:
    aged = worker(site, host(site, "local", OTHER))
    result = aged.run(recording)
    assert (result.status, result.agent_version) == ("completed", "2.1.50")
    started, session, *_ = map(json.loads, site.events(result.turn_id))
    assert (started["agent_version"], session["agent_version"]) == ("2.1.50", None)
    (row,) = site.ledger.reports.history(1)
    assert row.agent_version == "2.1.50"
    assert aged.seen("2.1.50", Standing.UNPROVED) == 1


def test_what_the_agent_says_itself_holds(site: Site, recording: list[str]) -> None:
    aged = worker(site, host(site, "local", OTHER))
    told = [recording[0].replace('"init"', '"init", "claude_code_version": "2.1.330"'), recording[1]]
    result = aged.run(told)
    assert result.agent_version == "2.1.330"
    (row,) = site.ledger.reports.history(1)
    assert row.agent_version == "2.1.330"
    assert (aged.seen("2.1.330", Standing.PROVED), aged.seen("2.1.50", Standing.UNPROVED)) == (1, None)


def test_turns_share_a_look(site: Site, recording: list[str]) -> None:
    aged = worker(site, host(site, "local", NEW))
    assert [aged.run(recording).agent_version for _ in range(3)] == ["2.1.330"] * 3
    assert aged.agent.looks == 1


def test_version_that_is_known_not_to_work_is_refused_before_anything_is_spent(
    site: Site, recording: list[str]
) -> None:
    aged = worker(site, host(site, "local", OLD))
    result = aged.run(recording)
    assert result.error is not None
    assert (result.error.kind, result.error.retryable, result.attempts) == ("agent_version_unsupported", False, 0)
    assert result.error.message == (
        "agent aged on local: version 1.0.128 is known not to work: it says nothing of its end; install a "
        "tested version (2.1.330) on local, or allow this one: "
        'allow_versions = ["1.0.128"] in the table aged'
    )
    assert not (site.root / "local" / "spool").exists()
    assert aged.seen("1.0.128", Standing.UNSUPPORTED) == 1


def test_operator_may_allow_it(site: Site, recording: list[str]) -> None:
    result = worker(site, host(site, "local", OLD), allow_versions=["1.0.128"]).run(recording)
    assert (result.status, result.agent_version, result.attempts) == ("completed", "1.0.128", 1)


def test_another_host_with_a_better_version_runs_the_turn_in_its_first_attempt(
    site: Site, recording: list[str]
) -> None:
    aged = worker(site, host(site, "old", OLD), host(site, "new", NEW))
    turn_id = aged.queued(recording, max_attempts=1)
    assert isinstance(result := aged.work(turn_id), TurnResult)
    assert (result.status, result.host, result.attempts) == ("completed", "new", 1)


def test_turn_that_names_the_host_is_refused_all_the_same(site: Site, recording: list[str]) -> None:
    aged = worker(site, host(site, "old", OLD), host(site, "new", NEW))
    result = aged.run(recording, host="old")
    assert result.error is not None
    assert (result.error.kind, result.host) == ("agent_version_unsupported", None)


def test_turn_waits_for_the_host_that_can_run_it(site: Site, recording: list[str]) -> None:
    aged = worker(site, host(site, "old", OLD), host(site, "new", NEW, slots=1))
    busy = site.claim(aged.queued(recording))
    place = {"host": "new", "spool_id": "other.1", "session_id": None, "resume": False}
    assert isinstance(site.ledger.queue.begin_attempt(busy, now=site.now(), **place), Attempt)
    turn_id = aged.queued(recording)
    assert isinstance(parked := aged.work(turn_id), Parked)
    assert parked.reason == "host_busy: all slots are taken on new"
    assert aged.attempts(turn_id) == []


def test_upgrade_on_the_host_is_noticed_without_a_restart(site: Site, recording: list[str]) -> None:
    place = host(site, "local", OLD)
    aged = worker(site, place)
    assert aged.run(recording).error is not None
    host(site, "local", NEW)
    aged.now = 29.0
    assert aged.run(recording).error is not None
    aged.now = 31.0
    assert aged.run(recording).agent_version == "2.1.330"
    host(site, "local", OLD)
    aged.now = 340.0
    refused = aged.run(recording)
    assert refused.error is not None
    assert refused.error.kind == "agent_version_unsupported"


def test_agent_that_any_request_may_have_is_none_with_such_a_version(site: Site, recording: list[str]) -> None:
    result = worker(site, host(site, "local", OLD)).run(recording, agent="auto")
    assert result.error is not None
    assert result.error.kind == "agent_version_unsupported"
    assert "it says nothing of its end; install a tested version" in result.error.message


@pytest.mark.parametrize("says", ["", "no number at all"])
def test_version_that_nobody_tells_is_not_guessed_and_harms_no_turn(
    site: Site, recording: list[str], says: str
) -> None:
    result = worker(site, host(site, "local", says)).run(recording)
    assert (result.status, result.agent_version) == ("completed", None)


def test_look_that_takes_too_long_is_not_waited_for(
    site: Site, recording: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_health, "_PATIENCE_S", 0.1)
    aged = worker(site, host(site, "local", OLD))
    aged.agent.probe = lambda: ("sleep", "600")  # type: ignore[method-assign]
    assert aged.run(recording).status == "completed"


def test_what_a_host_told_last_holds_while_it_is_away() -> None:
    answers = {"version": "2.1.330", "reached": True}
    now, looks = 0.0, 0

    async def look(place: TurnHost, adapter: Any) -> AgentReport:
        nonlocal looks
        looks += 1
        if not answers["reached"]:
            return AgentReport("aged", place.name, "", Health(False, problem="away"), ABLE, reached=False)
        version = str(answers["version"])
        return AgentReport(
            "aged", place.name, "aged", Health(True, version), ABLE, verdict=verdict_on(version, VERSIONS)
        )

    async def story() -> None:
        nonlocal now
        health, agent = AgentHealth(lambda: now), Aged()
        place = TurnHost(LocalHost(os.environ), "/nowhere")

        async def told() -> tuple[str | None, bool]:
            report = await health.at_start(place, agent, look)
            for _ in range(3):  # a look in the background
                await asyncio.sleep(0)
            assert report is not None
            return report.health.version, report.refusal is not None

        assert (await told(), looks) == (("2.1.330", False), 1)
        answers["version"] = "1.0.128"
        now = 250.0  # a look is due soon: this turn need not wait for it, the next one knows
        assert (await told(), looks) == (("2.1.330", False), 2)
        assert (await told(), looks) == (("1.0.128", True), 2)
        answers["reached"] = False
        now += 31.0
        assert (await told(), looks) == (("1.0.128", True), 3)
        answers.update(reached=True, version="2.1.330")
        now += 31.0
        assert (await told(), looks) == (("2.1.330", False), 4)
        answers["reached"] = False
        now += 301.0
        assert (await told(), looks) == ((None, False), 5)  # it may have been replaced since
        assert not health.lacks("local", "aged")

    asyncio.run(story())


def test_host_that_cannot_be_asked_is_tried_as_without_a_look(
    site: Site, recording: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(place: TurnHost, *_: object) -> AgentReport:
        raise HostUnreachable(place.name, "it is away")

    aged = worker(site, host(site, "local", OLD))
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(agent_check, "look", away)
        assert aged.run(recording).agent_version is None
    aged.now = 31.0
    assert aged.run(recording).error is not None
