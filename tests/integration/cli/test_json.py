"""`--json` prints one JSON document on stdout, and nothing else."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from adapters.protocol.result import TurnResult
from tests.integration.cli.conftest import Cli
from tests.support.fleets.fleet import Fleet
from workers.cli.main import cli as group

COMMANDS = {
    "run": ("run", "x", "-o", "recording={recording}"),
    "enqueue": ("enqueue", "x", "-o", "recording={recording}"),
    "result": ("result", "{turn_id}"),
    "cancel": ("cancel", "{turn_id}"),
    "session": ("session", "x", "-o", "recording={recording}", "--test", "true"),
    "history": ("history",),
    "cost": ("cost", "--by", "agent"),
    "doctor": ("doctor",),
    "agents": ("agents",),
    "replay": ("replay", "--agent", "claude-code", "{recording}"),
    "top": ("top",),
}


@pytest.fixture
def turn_id(crew: Fleet, recording: Path) -> str:
    """A turn that has ended."""
    return crew.run(crew.recorded(recording)).turn_id


# They need a turn that runs, and an agent that talks: see tests/integration/clients/test_control_ways.py.
ELSEWHERE = {"interrupt", "send", "answer"}


def _with_json() -> set[str]:
    context = click.Context(group)
    commands = {name: group.get_command(context, name) for name in group.list_commands(context)}
    return {
        name
        for name, command in commands.items()
        if command and any("--json" in parameter.opts for parameter in command.params)
    }


def test_every_command_with_the_option_is_tried() -> None:
    assert _with_json() == set(COMMANDS) | ELSEWHERE


@pytest.mark.parametrize("name", COMMANDS)
def test_one_document_and_nothing_else(fleet_cli: Cli, recording: Path, turn_id: str, name: str) -> None:
    arguments = [word.format(recording=recording, turn_id=turn_id) for word in COMMANDS[name]]
    said = fleet_cli(*arguments, "--json")
    assert said.err == ""
    assert isinstance(said.document, dict | list)
    assert said.document  # none of them is empty here


def test_result_is_the_published_document(fleet_cli: Cli, crew: Fleet, turn_id: str) -> None:
    said = fleet_cli("result", turn_id, "--json")
    assert TurnResult.model_validate(said.document) == crew.result(turn_id)


def test_money_and_tokens_of_lists_are_those_of_the_result(fleet_cli: Cli, crew: Fleet, turn_id: str) -> None:
    used = crew.result(turn_id).usage
    (row,) = fleet_cli("history", "--limit", "1", "--json").document
    assert row["turn_id"] == turn_id
    assert row["spent"]["tokens"]["output_tokens"] == used.output_tokens
    assert row["spent"]["cost_usd"] == pytest.approx(crew.result(turn_id).cost_usd)


def test_failed_command_prints_nothing_on_stdout(fleet_cli: Cli) -> None:
    said = fleet_cli("result", "nobody", "--json")
    assert (said.status, said.out) == (2, "")
    assert said.err
