"""A hundred turns at once on one host, whose sshd has the limits that it comes with."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import psutil
import pytest

from adapters.protocol.result import Status, TurnResult
from tests.support.fleets.fleet import Fleet, Worker
from tests.support.places import RECORDINGS
from tests.support.processes import agents
from tests.support.ssh.ssh_host import Gate, assert_nothing_left, channels, ssh_host, ssh_hosts
from tests.support.ssh.ssh_logins import Login
from tests.support.waiting import until

TURNS = 100
HANDSHAKES = 8  # at a time; sshd begins to refuse some at 10 (MaxStartups)
# 13 with 8 channels each, where sshd allows 10 (MaxSessions), and some for what turns ask besides: on a busy
# machine, more of them ask at a time.
CONNECTIONS = 13 + 3
SLOW_S = 240.0  # for a hundred of anything, on a machine that is busy with other tests
RECORDING = RECORDINGS / "a_parallel_tools.jsonl"

# Idle connections are closed after a minute, and so long one of these tests waits for it.
pytestmark = pytest.mark.timeout(600)


@dataclass
class Crowd:
    """A fleet with one worker, one host, and what became of the hundred."""

    fleet: Fleet
    login: Login
    worker: Worker
    connections: list[int] = field(default_factory=list)  # that the host had until all were at work
    agents: int = 0  # at that moment
    channels: int = 0
    results: list[TurnResult] = field(default_factory=list)

    def run(self, gate: Gate) -> None:
        """Let all begin before the first one may end."""
        turns = [self.fleet.client.enqueue(self.fleet.recorded(RECORDING)) for _ in range(TURNS)]
        until(lambda: self._look() and len(list(self.login.folder.glob("here.*"))) == TURNS, "all agents", SLOW_S)
        self._look()
        self.agents, self.channels = len(agents(self.login.spools)), channels(self.login.sshd)
        gate.open()
        until(lambda: all(map(self.fleet.ledger.reports.result, turns)), "all results", SLOW_S)
        self.results = [self.fleet.result(turn_id) for turn_id in turns]

    def sockets(self) -> int:
        """The worker's connections to the host, as its own end sees them."""
        found = psutil.Process(self.worker.process.pid).net_connections("tcp")
        there = (self.login.sshd.host, self.login.sshd.port)
        return sum(end.status == psutil.CONN_ESTABLISHED and tuple(end.raddr) == there for end in found)

    def _look(self) -> bool:
        self.connections.append(self.login.sshd.connections())
        return True


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crowd]:
    root = tmp_path_factory.mktemp("load")
    gate = Gate(root / "gate")
    with ssh_host("h1", root) as login:
        agent = login.program("agent", f'#!/bin/sh\n: >"${{0%/*}}/here.$$"\n{gate.wait}\nexec awk "$@"\n')
        hosts = ssh_hosts(login.setting(agents={"scripted": str(agent)}))
        patient = {"agent__read_timeout_ms": "600000", "agent__max_concurrent_agents": str(TURNS)}
        with Fleet(root, ssh_hosts=hosts, **patient) as fleet:
            crowd = Crowd(fleet, login, fleet.start_worker())
            crowd.run(gate)
            yield crowd
    gate.close()


def handshakes(log: str) -> int:
    """How many logins were under way at once, at most, by an sshd's own account."""
    most, under_way = 0, set()
    for line in log.splitlines():
        if begun := re.match(r"Connection from \S+ port (\d+)", line):
            under_way.add(begun[1])
            most = max(most, len(under_way))
        elif over := re.match(r"Accepted publickey for \S+ from \S+ port (\d+)", line):
            under_way.discard(over[1])
    return most


def test_all_complete_at_the_first_attempt(crowd: Crowd) -> None:
    ends = {(result.status, result.attempts, result.host, result.text) for result in crowd.results}
    assert ends == {(Status.COMPLETED, 1, "h1", "Done both.")}
    assert len(crowd.results) == TURNS


def test_all_are_at_work_at_the_same_time(crowd: Crowd) -> None:
    assert crowd.agents == TURNS
    assert crowd.channels >= TURNS


def test_connections_are_few_and_are_not_made_all_at_once(crowd: Crowd) -> None:
    log = crowd.login.sshd.log()
    replaced = crowd.worker.log.read_text().count("does not release a closed channel")  # on a busy machine
    assert max(crowd.connections) <= CONNECTIONS + replaced
    # As all end at once, the host is slow to let their channels go: some connections are replaced.
    assert log.count("Accepted publickey for") <= 2 * CONNECTIONS
    assert 1 <= handshakes(log) <= HANDSHAKES
    assert "drop connection" not in log
    assert "no more sessions" not in log


def test_nothing_is_left_of_them_while_their_worker_lives_on(crowd: Crowd) -> None:
    assert_nothing_left(crowd.login)
    until(lambda: not crowd.login.sshd.connections(), "idle connections to be closed", SLOW_S)
    assert crowd.sockets() == 0
    until(lambda: not crowd.login.sshd.sessions(), "the host to be rid of them")


def test_nothing_is_left_when_their_worker_has_left(crowd: Crowd) -> None:
    assert crowd.fleet.run(crowd.fleet.recorded(RECORDING)).status is Status.COMPLETED
    assert crowd.sockets() == crowd.login.sshd.connections() == 1
    crowd.worker.terminate()
    assert crowd.worker.wait() == 0
    until(lambda: not crowd.login.sshd.sessions(), "the host to be rid of the connection")
    assert_nothing_left(crowd.login)
