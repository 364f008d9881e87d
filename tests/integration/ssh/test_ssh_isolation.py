"""Turns whose isolation or limits a host does not provide, and turns over their limits, over SSH."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from adapters.isolation import Isolation
from adapters.protocol.result import Status
from tests.support.fleets.fleet import Fleet
from tests.support.needs import need, need_namespaces
from tests.support.places import RECORDINGS
from tests.support.ssh.ssh_host import Gate, ssh_host, ssh_hosts
from tests.support.waiting import until

RECORDING = RECORDINGS / "a_parallel_tools.jsonl"
PLAYED = '#!/bin/sh\n{wait}\nexec awk "$@"\n'
BREEDING = "#!/bin/sh\nfor i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do sleep 600 & done\nwait\n"


@contextmanager
def two_hosts(root: Path, wait: str = "", **fields: Any) -> Iterator[Fleet]:
    """A fleet whose first host cannot make a sandbox."""
    need_namespaces()
    need("bwrap")
    with ssh_host("h1", root) as h1, ssh_host("h2", root) as h2:
        broken = h1.program("broken/bwrap", "#!/bin/sh\necho 'no namespaces here' >&2\nexit 1\n").parent
        shown = {"sandbox_paths": [str(RECORDINGS), str(root)]}
        agent = {"scripted": str(h2.program("agent", PLAYED.format(wait=wait)))}
        settings = (
            h1.setting(path=[str(broken)], agents=agent, **shown),
            h2.setting(agents=agent, **shown, **fields),
        )
        with Fleet(root, ssh_hosts=ssh_hosts(*settings)) as fleet:
            fleet.start_worker()
            yield fleet


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "h1/broken").mkdir(parents=True)
    return tmp_path


def test_turn_goes_to_a_host_that_can_isolate_it(root: Path) -> None:
    with two_hosts(root) as fleet:
        results = [fleet.run(fleet.recorded(RECORDING, isolation=Isolation.SANDBOX)) for _ in range(2)]
        assert [(result.status, result.host) for result in results] == [(Status.COMPLETED, "h2")] * 2, results


def test_turn_waits_for_the_host_that_can_isolate_it(root: Path) -> None:
    gate = Gate(root / "gate")
    with two_hosts(root, gate.wait, max_concurrent_agents=1) as fleet:
        first = fleet.client.enqueue(fleet.recorded(RECORDING, host="h2"))
        until(lambda: fleet.ledger.hosts.open_attempts().get("h2"), "the first to take the only slot there")
        second = fleet.client.enqueue(fleet.recorded(RECORDING, isolation=Isolation.SANDBOX, max_attempts=3))
        until(lambda: fleet.ledger.reports.turn(second).wait_reason == "host_busy", "the second to wait for it")
        assert fleet.ledger.reports.turn(second).attempts == 1, "on the host that refused"
        gate.open()
        assert fleet.result(first).status is Status.COMPLETED
        result = fleet.result(second)
        assert (result.status, result.host, result.attempts) == (Status.COMPLETED, "h2", 2), result.error


def test_turn_that_no_host_can_isolate_says_why(root: Path) -> None:
    with two_hosts(root) as fleet:
        result = fleet.run(fleet.recorded(RECORDING, isolation=Isolation.SANDBOX, host="h1"))
        assert result.error is not None
        assert (result.status, result.error.kind, result.attempts) == (Status.FAILED, "isolation_unavailable", 1)
        assert "h1" in result.error.message and "no namespaces here" in result.error.message


def test_turn_over_its_processes_fails_with_the_limit_and_is_not_tried_again(tmp_path: Path) -> None:
    need_namespaces()
    with ssh_host("h1", tmp_path) as login:
        setting = login.setting(agents={"scripted": str(login.program("agent", BREEDING))}, max_processes=12)
        with Fleet(tmp_path, ssh_hosts=ssh_hosts(setting)) as fleet:
            fleet.start_worker()
            result = fleet.run(fleet.recorded(RECORDING, max_processes=500))
            assert result.error is not None
            assert (result.status, result.error.kind, result.attempts) == (Status.FAILED, "processes_exceeded", 1)
            assert result.error.message.startswith(
                "host h1: the agent and its tools exceeded max_processes (12), "
            )
