"""What the README says is so: its tables are complete, its commands exist, its programs run."""

from __future__ import annotations

import inspect
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from adapters.claude_code.options import FLAGS, ClaudeCodeOptions
from adapters.errors import KINDS, Retry
from adapters.result import TurnResult
from ops.settings import AgentSettings, Settings, SshHostSettings, SshSettings, load_settings
from tests.model_api import ModelApi, Reply, Script, Text, Usage
from tests.workers.conftest import claude_fleet
from tests.workers.fleet import Fleet
from workers.agents import build_registry
from workers.cli import status
from workers.cli.main import cli as group

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text()
RETRIED = {Retry.NEVER: "no", Retry.BACKOFF: "yes", Retry.WAIT: "waits"}


def table(first: str) -> list[list[str]]:
    """The rows of the table whose first column has that title, without markup."""
    lines = README[README.index(f"| {first} |") :].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines]


def blocks(language: str) -> list[str]:
    """The contents of the fenced blocks in that language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def test_settings_are_all_there_with_their_defaults() -> None:
    defaults: dict[str, Any] = {}
    for name, field in Settings.model_fields.items():
        if name not in ("agent", "ssh"):
            defaults[f"RUNTURN_{name.upper()}"] = field.default
    for table_name, settings in (("AGENT", AgentSettings), ("SSH", SshSettings)):
        for name, field in settings.model_fields.items():
            defaults[f"RUNTURN_{table_name}__{name.upper()}"] = field.default
    rows = {name: default for name, default, _ in table("Setting")}
    assert rows.keys() == defaults.keys()
    for name, default in defaults.items():
        if isinstance(default, int | str | dict):
            assert rows[name] == str(default)


def test_host_fields_are_all_there_with_their_defaults() -> None:
    rows = {name: default for name, default, _ in table("Host field")}
    assert rows.keys() == SshHostSettings.model_fields.keys()
    assert rows["spool_dir"] == SshHostSettings.model_fields["spool_dir"].default


def test_configuration_file_is_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    block = "\n".join(blocks("toml"))
    path = tmp_path / "runturn.toml"
    path.write_text(block)
    monkeypatch.setenv("RUNTURN_CONFIG", str(path))
    settings = load_settings()
    assert settings.agents == {"claude-code": tomllib.loads(block)["claude-code"]}
    assert build_registry(settings).names


def test_options_are_all_there_with_their_flags() -> None:
    rows = {name: flag for name, flag, _ in table("Option")}
    assert rows.keys() == ClaudeCodeOptions.model_fields.keys()
    assert {name: flag for name, flag in rows.items() if name in FLAGS} == FLAGS


def test_error_kinds_are_all_there_with_their_retry_class_and_meaning() -> None:
    expected = [
        [kind, RETRIED[error.default_retry], inspect.cleandoc(error.__doc__ or "")]
        for kind, error in KINDS.items()
    ]
    assert table("Kind") == expected


def test_result_has_all_fields() -> None:
    (block,) = blocks("json")
    document = json.loads(block)
    assert list(document) == list(TurnResult.model_fields)
    assert TurnResult.model_validate(document).model_dump(mode="json") == document


def test_exit_statuses_are_those_of_the_program() -> None:
    own = {value for name, value in vars(status).items() if name.isupper()}
    assert {int(code) for code, _ in table("Exit status")} == own


def _commands() -> Iterator[list[str]]:
    for block in blocks("sh"):
        for line in block.splitlines():
            words = shlex.split(line, comments=True)
            if words and words[0].endswith("runturn"):
                yield words[1:]


@pytest.mark.parametrize("words", list(_commands()), ids=" ".join)
def test_commands_exist_with_their_options(words: list[str]) -> None:
    command: click.Command | None = group
    while isinstance(command, click.Group):
        name, *words = words
        command = command.get_command(click.Context(command), name)
    assert command is not None
    command.make_context(name, words, resilient_parsing=True)


def test_make_targets_and_files_exist() -> None:
    targets = set(re.findall(r"\bmake ([a-z]+)\b", README))
    assert targets <= set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for path in re.findall(r"\]\((\S+?)\)|`((?:adapters|ops|workers|remote|docs)/[\w/.]+)`", README):
        assert (ROOT / "".join(path)).exists(), path


@pytest.fixture(scope="module")
def claude(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Fleet, ModelApi]]:
    """The real Claude Code, which says three things."""
    answers = tuple(Reply((Text("A README."),), Usage(100, 20)) for _ in range(3))
    with claude_fleet(tmp_path_factory.mktemp("readme"), Script("readme", answers)) as fleet:
        yield fleet


@pytest.mark.parametrize("number", range(2), ids=["by name", "client"])
def test_programs_run(claude: tuple[Fleet, ModelApi], number: int) -> None:
    fleet, _ = claude
    program = blocks("python")[number].replace("/srv/checkout", str(fleet.workspace))
    environment = {
        "PATH": os.environ["PATH"],
        "RUNTURN_BROKER_URL": fleet.broker.url,
        "RUNTURN_LEDGER_URL": fleet.state.ledger_url,
    }
    said = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (said.returncode, said.stderr) == (0, "")
    assert re.fullmatch(r"completed A README\. 0\.\d+", said.stdout.splitlines()[-1])
    if number == 0:
        assert fleet.ledger.turn("issue-4711").labels == {"team": "web"}
    else:
        assert said.stdout.startswith("1 attempt_started\n2 session_started\n")


def test_nobody_needs_runturn_to_produce() -> None:
    assert not re.search(r"^(from|import) (adapters|ops|remote|workers)", blocks("python")[0], re.MULTILINE)
