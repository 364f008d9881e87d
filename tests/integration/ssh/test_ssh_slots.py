"""Three hosts with two slots each, and two workers: the agents that run are counted where they run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from adapters.protocol.result import Status, TurnResult
from ops.ledger import State
from tests.support.fleets.fleet import Fleet, slow_recording
from tests.support.places import RECORDINGS
from tests.support.ssh.ssh_host import Gate, assert_nothing_left, ssh_host, ssh_hosts
from tests.support.ssh.ssh_logins import Login
from tests.support.waiting import until

HOSTS = ("h1", "h2", "h3")
SLOTS = 2
TURNS = 24
CLAIMS = 4  # turns that one worker has in hand; not enough for all slots

# Each enters itself before it counts: of all that run at the same time, the last to enter counts all.
_COUNTED = """#!/bin/sh
mkdir -p "$0.running"
: >"$0.running/$$"
ls "$0.running" | wc -l >>"$0.counts"
{wait}
awk "$@"
code=$?
rm "$0.running/$$"
exit "$code"
"""


@dataclass(frozen=True, slots=True)
class Crowd:
    """What became of the turns."""

    logins: list[Login]
    results: list[TurnResult]
    first: Counter[str]  # agents on each host when all slots were taken

    def counts(self, login: Login) -> list[int]:
        """How many agents each agent saw on its host, itself included, by the order of their starts."""
        return [int(line) for line in (login.folder / "agent.counts").read_text().split()]


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crowd]:
    """Turns that find all slots taken, and come to their end as these get free."""
    root = tmp_path_factory.mktemp("slots")
    gate = Gate(root / "gate")
    with ExitStack() as stack:
        logins = [stack.enter_context(ssh_host(name, root)) for name in HOSTS]
        settings = []
        for login in logins:
            agent = login.program("agent", _COUNTED.format(wait=gate.wait))
            settings.append(login.setting(agents={"scripted": str(agent)}, max_concurrent_agents=SLOTS))
        few = {"agent__max_concurrent_agents": str(CLAIMS), "agent__read_timeout_ms": "600000"}
        fleet = stack.enter_context(Fleet(root, ssh_hosts=ssh_hosts(*settings), **few))
        for _ in range(2):
            fleet.start_worker()
        recording = slow_recording(root / "slow.jsonl", RECORDINGS / "a_parallel_tools.jsonl", 50)
        turns = [fleet.client.enqueue(fleet.recorded(recording)) for _ in range(TURNS)]

        def waiting() -> int:
            return sum(
                fleet.ledger.reports.turn(turn_id).state in (State.QUEUED, State.WAITING) for turn_id in turns
            )

        until(lambda: all(running(login) >= SLOTS for login in logins), "agents on all slots")
        until(lambda: waiting() == TURNS - SLOTS * len(HOSTS), "all other turns to wait")
        first = Counter({login.name: running(login) for login in logins})
        gate.open()
        results = [fleet.result(turn_id) for turn_id in turns]
        yield Crowd(logins, results, first)
        gate.close()


def running(login: Login) -> int:
    """How many agents run on a host now, by its own account."""
    return len(list((login.folder / "agent.running").glob("*")))


def test_turns_spread_over_all_slots_and_wait_for_one_when_these_are_taken(crowd: Crowd) -> None:
    assert crowd.first == dict.fromkeys(HOSTS, SLOTS)


def test_no_host_ever_has_more_agents_than_slots(crowd: Crowd) -> None:
    assert {login.name: max(crowd.counts(login)) for login in crowd.logins} == dict.fromkeys(HOSTS, SLOTS)


def test_none_starves_and_none_runs_twice(crowd: Crowd) -> None:
    assert {(result.status, result.attempts) for result in crowd.results} == {(Status.COMPLETED, 1)}
    ran = Counter(result.host for result in crowd.results)
    assert ran == {login.name: len(crowd.counts(login)) for login in crowd.logins}


def test_nothing_is_left(crowd: Crowd) -> None:
    for login in crowd.logins:
        assert_nothing_left(login)
