"""Requests that leave their agent open, on workers of one machine."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue

from adapters.claude_code.adapter import ClaudeCode
from adapters.contract import Billing, Capabilities, Exit, Health
from adapters.live import ControlRequest, Conversation, Desk, Wire
from adapters.protocol.request import TurnRequest
from adapters.protocol.result import TurnResult
from adapters.registry import Registry
from adapters.replay_agent import ReplayAgent
from ops.settings import AgentTable
from remote.local import LocalHost
from tests.support.fleets.site import Killed, Site
from workers.agents.health import AgentHealth
from workers.agents.probe import AgentReport
from workers.context import WorkerContext
from workers.hosts.inventory import Hosts, TurnHost
from workers.turn.run import RunTurn

PLAIN = Capabilities(resume=True, structured_output=False, cost_cap=False, live_output_tokens=False)


class Listener:
    """A conversation in which nobody says anything to the agent."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def run(self) -> None:
        """See `Conversation.run`."""
        async for _ in self._wire.lines():
            pass

    async def control(self, request: ControlRequest) -> Mapping[str, JsonValue]:
        """See `Conversation.control`."""
        raise NotImplementedError


class Agent(ReplayAgent):
    """A replay that goes by another name, and can what it is said to."""

    def __init__(self, name: str, capabilities: Capabilities = PLAIN, problem: str | None = None) -> None:
        super().__init__(ClaudeCode())
        self.name = name
        self.capabilities = capabilities
        self.problem = problem
        self.looks = 0

    def health(self, end: Exit, stdout: str) -> Health:
        """See `Adapter.health`."""
        self.looks += 1
        return Health(self.problem is None, "1.0", self.problem)

    def converse(self, request: TurnRequest, wire: Wire, desk: Desk) -> Conversation:
        """See `LiveAdapter.converse`."""
        return Listener(wire)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.close()


def worker(site: Site, *agents: Agent, **fields: Any) -> WorkerContext:
    return replace(site.worker(), registry=Registry(agents), **fields)


def run(site: Site, context: WorkerContext, turn_id: str) -> TurnResult:
    outcome = asyncio.run(RunTurn(context, site.claim(turn_id)).drive())
    assert isinstance(outcome, TurnResult), outcome
    return outcome


def queued(site: Site, recording: list[str], **fields: Any) -> str:
    return site.queue(agent="auto", options={"lines": recording}, **fields)


@pytest.fixture
def recording() -> list[str]:
    """A turn that says nothing but that it is there, and done."""
    report = {"type": "result", "subtype": "success", "is_error": False, "result": "done", "num_turns": 1}
    started = {"type": "system", "subtype": "init", "session_id": "s1", "model": "m"}
    return [json.dumps(started), json.dumps({**report, "stop_reason": "end_turn"})]


def events(site: Site, turn_id: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in site.events(turn_id)]


def test_agent_is_chosen_by_what_the_request_needs(site: Site, recording: list[str]) -> None:
    snake = Agent("snake", replace(PLAIN, languages=frozenset({"python"}), live=True))
    context = worker(site, Agent("any"), snake)
    turn_id = queued(site, recording, needs={"live": True, "language": "python"})
    assert run(site, context, turn_id).text == "done"
    chosen, started, *_ = events(site, turn_id)
    assert (chosen["event"], chosen["agent"], chosen["seq"], started["seq"]) == ("agent_chosen", "snake", 1, 2)
    assert "language=python, live; billed to api; no other candidate" in chosen["reason"]
    assert started["agent"] == "snake"
    (turn,) = site.ledger.reports.history(1)
    assert turn.agent == "snake"


def test_default_agent_comes_first_and_one_that_is_ill_not_at_all(site: Site, recording: list[str]) -> None:
    agents = Agent("aa"), Agent("claude-code"), Agent("bb", problem="it is gone")
    first = queued(site, recording)
    run(site, worker(site, *agents), first)
    agents[1].problem = "it is gone, too"
    second = queued(site, recording)
    run(site, worker(site, *agents), second)
    assert [events(site, turn_id)[0]["agent"] for turn_id in (first, second)] == ["claude-code", "aa"]


def test_billing_is_preferred_as_the_request_says(site: Site, recording: list[str]) -> None:
    both = replace(PLAIN, billing=frozenset({Billing.API, Billing.SUBSCRIPTION}))
    context = worker(site, Agent("aa"), Agent("bb", both))
    settings = context.settings.model_copy(update={"agents": {"bb": AgentTable(billing=Billing.SUBSCRIPTION)}})
    turn_id = queued(site, recording, needs={"billing": ["subscription", "api"]})
    run(site, replace(context, settings=settings), turn_id)
    assert events(site, turn_id)[0]["agent"] == "bb"


def test_request_that_no_agent_can_meet_is_refused_with_the_need_named(site: Site, recording: list[str]) -> None:
    result = run(site, worker(site, Agent("aa")), queued(site, recording, needs={"cost_cap": True}))
    assert result.error is not None
    assert (result.error.kind, result.attempts) == ("invalid_request", 0)
    assert result.error.message == "needs.cost_cap: no agent offers cost_cap; agents: aa"


def test_agents_that_cannot_be_used_fail_the_turn_with_their_problems(site: Site, recording: list[str]) -> None:
    result = run(site, worker(site, Agent("aa", problem="it is gone")), queued(site, recording))
    assert result.error is not None
    assert (result.error.kind, "aa on local: it is gone" in result.error.message) == ("agent_not_found", True)


def test_turn_stays_with_its_agent_when_its_worker_is_killed(site: Site, recording: list[str]) -> None:
    first, second = Agent("claude-code"), Agent("aa")
    turn_id = queued(site, recording)

    def die(what: str) -> None:
        if what == "after queue.route":
            raise Killed

    with pytest.raises(Killed):
        asyncio.run(
            RunTurn(replace(site.worker(die), registry=Registry([first, second])), site.claim(turn_id)).drive()
        )
    first.problem = "it is gone since"
    assert run(site, worker(site, second, first), turn_id).attempts == 1
    assert [event["agent"] for event in events(site, turn_id) if "agent" in event] == ["claude-code"] * 2


def test_session_stays_with_its_agent(site: Site, recording: list[str]) -> None:
    agents = Agent("aa"), Agent("claude-code")
    first = site.queue(agent="aa", options={"lines": recording})
    run(site, worker(site, *agents), first)
    entered = site.ledger.reports.turn(first).session_id
    turn_id = queued(site, recording, session_id=entered)
    run(site, worker(site, *agents), turn_id)
    assert events(site, turn_id)[0]["agent"] == "aa"
    refused = run(site, worker(site, *agents), queued(site, recording, session_id=entered, needs={"live": True}))
    assert refused.error is not None
    assert "no agent offers live; agents: aa" in refused.error.message


def test_look_is_shared_and_kept_for_a_while() -> None:
    now, asked = 0.0, 0

    async def look(host: TurnHost, adapter: Any) -> AgentReport:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0)
        return AgentReport(adapter.name, host.name, "awk", adapter.health(Exit(0), ""), adapter.capabilities)

    async def story() -> list[int]:
        nonlocal now
        health, agent = AgentHealth(lambda: now), Agent("aa")
        place = TurnHost(LocalHost(os.environ), "/nowhere")
        counts = []
        await asyncio.gather(*(health.of([place], [agent], look) for _ in range(5)))
        counts.append(asked)
        for later, problem in ((299.0, "ill"), (2.0, "ill"), (29.0, None), (2.0, None)):
            now += later
            agent.problem = problem
            await health.of([place], [agent], look)
            counts.append(asked)
            if later == 2.0:
                assert health.lacks("local", "aa") is (problem is not None)
        return counts

    assert asyncio.run(story()) == [1, 1, 2, 2, 3]


def test_host_without_the_agent_comes_last(site: Site, recording: list[str]) -> None:
    environment = {"PATH": os.environ["PATH"], "HOME": str(site.root)}
    hosts = [TurnHost(LocalHost(environment, name), str(site.root / f"spool-{name}")) for name in ("a", "b")]

    async def look(host: TurnHost, adapter: Any) -> AgentReport:
        healthy = Health(host.name == "b", problem=None if host.name == "b" else "not here")
        return AgentReport(adapter.name, host.name, "awk", healthy, adapter.capabilities)

    context = worker(site, agent := Agent("claude-code"), hosts=Hosts(hosts))
    asyncio.run(context.health.of(hosts, [agent], look))
    turn_id = queued(site, recording)
    assert run(site, context, turn_id).host == "b"
