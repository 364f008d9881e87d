"""Help that reads well and comes at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest

from tests.integration.cli.conftest import Cli
from workers.cli.main import SECTIONS
from workers.cli.main import cli as group

HEAVY = {"celery", "kombu", "redis", "sqlalchemy", "alembic", "prometheus_client", "claude_agent_sdk"}
NAMES = {name: summary for section in SECTIONS for name, summary in section.commands.items()}


def _command(name: str) -> click.Command:
    command = group.get_command(click.Context(group), name)
    assert command is not None
    return command


@pytest.mark.parametrize("name", NAMES)
def test_summary_is_the_first_line_of_the_commands_own_help(cli: Cli, name: str) -> None:
    assert (_command(name).help or "").partition("\n")[0] == NAMES[name]
    said = cli(name, "--help")
    assert (said.status, said.err) == (0, "")
    assert NAMES[name] in said.out


@pytest.mark.parametrize("name", NAMES)
def test_every_option_says_what_it_is_for(name: str) -> None:
    for parameter in _command(name).params:
        assert isinstance(parameter, click.Argument) or getattr(parameter, "help", None), parameter.name


def test_help_names_every_command_and_the_exit_status(cli: Cli) -> None:
    said = cli("--help")
    assert (said.status, said.err) == (0, "")
    width = max(map(len, NAMES))
    for name, summary in NAMES.items():
        assert f"{name:<{width}}  {summary}" in said.out
    ends = "0 completed, 1 the turn failed, 2 bad input, 3 no broker, ledger or worker, 130 interrupted."
    assert f"Exit status: {ends}" in " ".join(said.out.split())


def test_command_that_was_meant_is_named(cli: Cli) -> None:
    said = cli("histroy")
    assert said == (2, "", "runturn: No such command 'histroy'; did you mean history? (see runturn --help)\n")
    assert "did you mean" not in cli("make-coffee").err


def test_no_command_at_all_prints_the_help(cli: Cli) -> None:
    said = cli()
    assert said.status == 2
    assert "Turns:" in said.err


@pytest.mark.parametrize(
    "arguments", ["--help", "--version", "replay --agent claude-code {recording}", "replay --help"]
)
def test_what_needs_no_broker_and_no_ledger_does_not_load_their_libraries(recording: Path, arguments: str) -> None:
    program = (
        "import sys; from workers.cli.main import run; status = run(sys.argv[1:]);"
        f"print(*sorted({HEAVY!r} & sys.modules.keys()), file=sys.stderr); sys.exit(status)"
    )
    words = [word.format(recording=recording) for word in arguments.split()]
    said = subprocess.run([sys.executable, "-c", program, *words], check=False, capture_output=True, text=True)
    assert (said.returncode, said.stderr.strip()) == (0, "")


def test_list_of_commands_needs_no_models() -> None:
    program = "import sys; from workers.cli.main import run; run(['--help']); sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False, capture_output=True).returncode == 0
