"""Turns of the real Claude Code whose spool is removed while they run: their session files have the bill."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from adapters.protocol.request import TurnRequest
from adapters.protocol.result import Status
from tests.fakes.model_api import ModelApi, Reply, Script, Text, Usage, replies
from tests.fakes.model_api.cli import claude_binary, claude_environment
from tests.integration.conftest import claude_fleet
from tests.integration.turns.test_bills import SONNET, billed, booked, in_ledger
from tests.support.fleets.fleet import Fleet
from tests.support.needs import need
from tests.support.processes import command_of, of_turns
from tests.support.ssh.ssh_logins import Login, logins
from tests.support.ssh.sshd import Sshd
from tests.support.waiting import remove_spools, until

REMOVE = replies.bash('rm -rf "$RUNTURN_SPOOL"; sleep 300')
SLEEP = replies.bash("echo up; sleep 300")
FORGE = replies.bash('echo junk >"$RUNTURN_SPOOL/reason"; sleep 300')


def _went_on(text: str = "went on") -> Reply:
    return Reply((Text(text),), Usage(400, 60, 70, 8))


def _first() -> Reply:
    return Reply((replies.bash("echo a"),), Usage(100, 20, 30, 4))


SCRIPTS = (
    Script(
        "own",
        (
            _first(),
            Reply((REMOVE,), Usage(300, 50, 50, 6)),
            Reply((replies.bash("echo b"),), Usage(301, 51, 51, 7)),
            Reply((REMOVE,), Usage(302, 52, 52, 8)),
            _went_on(),
        ),
    ),
    Script("root", (_first(), Reply((SLEEP,), Usage(310, 53, 54, 9)), _went_on())),
    Script("worker", (_first(), Reply((SLEEP,), Usage(320, 55, 56, 10)), _went_on())),
    Script("forged", (_first(), Reply((FORGE,), Usage(340, 59, 60, 12)), _went_on())),
    Script("later", (_went_on("first"), _first(), Reply((SLEEP,), Usage(330, 57, 58, 11)), _went_on())),
)
SETTINGS = {"agent__lease_ms": "10000"}  # a heartbeat each second, which notices the loss
pytestmark = pytest.mark.timeout(300)


@dataclass
class Place:
    """A fleet with one worker and one host."""

    fleet: Fleet
    api: ModelApi
    spools: Path
    login: Login | None = None

    def request(self, script: str, **fields: Any) -> TurnRequest:
        prompt, fields = f"do it [script:{script}]", {"options": {"model": SONNET}, **fields}
        return (
            self.login.request(self.fleet, prompt, **fields)
            if self.login
            else self.fleet.request(prompt, **fields)
        )

    def asleep(self) -> bool:
        return any("sleep 300" in command_of(process) for process in of_turns(self.spools))


@contextmanager
def _over_ssh(root: Path) -> Iterator[Place]:
    need("sshd")
    with Sshd() as sshd, logins(sshd, root) as hosts, ModelApi(*SCRIPTS) as api:
        variables = claude_environment(api.base_url, root, max_retries=1)
        forwarded = sorted(set(variables) - {"PATH", "HOME", "CLAUDE_CONFIG_DIR"})
        host = hosts[0].setting(agents={"claude-code": str(claude_binary())}, env=forwarded)
        with Fleet(root, variables, ssh_hosts=json.dumps([host]), **SETTINGS) as fleet:
            fleet.start_worker()
            yield Place(fleet, api, hosts[0].spools, hosts[0])


@pytest.fixture(scope="module", params=["local", "ssh"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    root = tmp_path_factory.mktemp(request.param)
    with ExitStack() as stack:
        if request.param == "ssh":
            yield stack.enter_context(_over_ssh(root))
        else:
            fleet, api = stack.enter_context(claude_fleet(root, *SCRIPTS, **SETTINGS))
            yield Place(fleet, api, fleet.state.spool)


def test_agent_that_deletes_its_own_spool_twice_is_booked_to_the_token(place: Place) -> None:
    fleet = place.fleet
    result = fleet.run(place.request("own", max_attempts=3))
    assert (result.status, result.text, result.attempts) == (Status.COMPLETED, "went on", 3), result.error
    _assert_booked(place, "own", result.turn_id)
    assert not result.usage_complete


def test_removed_spool_root_costs_no_token(place: Place) -> None:
    turn_id = place.fleet.client.enqueue(place.request("root"))
    until(place.asleep, "the tool")
    remove_spools(place.spools)
    result = place.fleet.result(turn_id)
    assert (result.status, result.text, result.attempts) == (Status.COMPLETED, "went on", 2), result.error
    _assert_booked(place, "root", turn_id)


def test_spool_that_is_lost_while_no_worker_looks_costs_no_token(place: Place) -> None:
    fleet = place.fleet
    turn_id = fleet.client.enqueue(place.request("worker"))
    until(place.asleep, "the tool")
    fleet.workers[-1].kill()
    remove_spools(place.spools)
    fleet.start_worker()
    result = fleet.result(turn_id)
    assert (result.status, result.text, result.attempts) == (Status.COMPLETED, "went on", 2), result.error
    _assert_booked(place, "worker", turn_id)


def test_forged_reason_to_end_an_agent_costs_neither_the_turn_nor_a_token(place: Place) -> None:
    result = place.fleet.run(place.request("forged"))
    assert (result.status, result.text, result.attempts) == (Status.COMPLETED, "went on", 2), result.error
    _assert_booked(place, "forged", result.turn_id)


def test_session_of_an_earlier_turn_is_booked_as_far_as_the_agent_printed_it(place: Place) -> None:
    fleet = place.fleet
    first = fleet.run(place.request("later"))
    turn_id = fleet.client.enqueue(place.request("later", session_id=first.session_id))
    until(place.asleep, "the tool")
    remove_spools(place.spools)
    result = fleet.result(turn_id)
    assert (result.status, result.text, result.attempts) == (Status.COMPLETED, "went on", 2), result.error
    both = {
        model: tuple(map(sum, zip(counts, booked(result)[model], strict=True)))
        for model, counts in booked(first).items()
    }
    assert both == billed(place.api, "later")


def _assert_booked(place: Place, script: str, turn_id: str) -> None:
    result = place.fleet.result(turn_id)
    assert booked(result) == in_ledger(place.fleet, turn_id) == billed(place.api, script)
