"""The beginning of an id is enough for every command that takes one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from adapters.errors import TurnCancelled
from adapters.protocol.session_request import SessionRequest
from ops.ledger import Ledger
from ops.settings.state_dir import StateDir
from tests.integration.cli.conftest import Cli
from tests.support.ledger.accounts import a_request
from workers.cli.main import cli as group
from workers.results import refused

LONE = "0a1b2c3d-0000-4000-8000-000000000001"
TURNS = [f"turn-1{suffix}" for suffix in ("", "0", "1", "2", "3", "4", "5")]


@pytest.fixture
def ledger(cli: Cli, tmp_path: Path) -> Iterator[Ledger]:
    """Turns that were cancelled, and a session of turns."""
    with Ledger.open(StateDir.open(tmp_path / "state").ledger_url) as ledger:
        ledger.queue.submit_many([a_request(turn_id) for turn_id in (LONE, *TURNS)], 1.0)
        for turn_id in (LONE, *TURNS):
            ledger.queue.settle_unclaimed(turn_id, refused(turn_id, TurnCancelled("by the test")), 2.0)
        document = {"run_id": "run-a", "turn": {"prompt": "p", "workspace": "/w"}, "test_commands": ["true"]}
        ledger.session_runs.submit(SessionRequest.parse(document), 1.0)
        ledger.session_runs.cancel("run-a", 1.0)
        ledger.queue.settle_unclaimed("run-a.1", refused("run-a.1", TurnCancelled("by the test")), 2.0)
        yield ledger


def _commands(command: click.Command, name: str = "") -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield name, command
        return
    for each in command.list_commands(click.Context(command)):
        found = command.get_command(click.Context(command), each)
        assert found is not None
        yield from _commands(found, f"{name} {each}".strip())


def _takes_an_id(command: click.Command) -> bool:
    return any(each.name == "turn_id" and isinstance(each, click.Argument) for each in command.params)


TAKING = [name for name, command in _commands(group) if _takes_an_id(command)]
MORE = {"send": ["hi"], "answer": ["q", "deny"], "control set-model": ["m"], "control set-permission-mode": ["m"]}


@pytest.mark.usefixtures("ledger")
@pytest.mark.parametrize("name", TAKING)
def test_every_command_refuses_an_id_that_several_have(cli: Cli, name: str) -> None:
    said = cli(*name.split(), "turn-", *MORE.get(name, []))
    assert (said.status, said.out) == (2, "")
    assert "several turns start with 'turn-': turn-1, turn-10, turn-11, turn-12, turn-13, …; give more" in said.err
    assert said.err.count("\n") == 1


def test_every_command_that_takes_an_id_is_tried() -> None:
    assert {"watch", "result", "cancel", "interrupt", "send", "answer", "transcript", *MORE} <= set(TAKING)


@pytest.mark.usefixtures("ledger")
def test_beginning_is_enough_and_an_equal_id_wins(cli: Cli) -> None:
    assert f"turn {LONE}" in cli("result", LONE[:4]).out
    assert cli("result", "turn-1", "--json").document["turn_id"] == "turn-1"
    assert cli("cancel", LONE[:8], "--json").document["turn_id"] == LONE
    assert f"turn {LONE} has already finished" in cli("interrupt", LONE[:8]).err


@pytest.mark.usefixtures("ledger")
def test_session_of_turns_has_a_beginning_too(cli: Cli) -> None:
    assert cli("result", "run-", "--json").document["run_id"] == "run-a"
    assert "turn run-a.1 has already finished" in cli("interrupt", "run-a").err
    assert cli("result", "run-.1", "--json").document["turn_id"] == "run-a.1"
    assert "no transcripts are kept" in cli("transcript", "run-").err


@pytest.mark.usefixtures("ledger")
@pytest.mark.parametrize("name", ["cancel", "interrupt"])
def test_command_that_changes_a_turn_wants_the_whole_of_an_id_that_somebody_chose(cli: Cli, name: str) -> None:
    said = cli(name, "run-")
    assert (said.status, said.out) == (2, "")
    assert "there is no turn run-; if you mean run-a, give its whole id" in said.err


@pytest.mark.usefixtures("ledger")
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("0a1", "'0a1' is too short: give at least 4 characters"),
        ("nobody", "no turn nobody; see: runturn history"),
        ("", "too short"),
        ("\udcff", "no turn '\\udcff'"),  # how Python sees a byte 0xff in an argument
    ],
)
def test_what_stands_for_no_turn_says_so(cli: Cli, given: str, said: str) -> None:
    status, out, err = cli("result", given)
    assert (status, out) == (2, "")
    assert said in err
