"""Every block of code in every document says what runs it, and every test and command that is named exists."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click
import pytest

from ops.settings import load_settings
from ops.settings.state_dir import StateDir
from tests.docs.pages import BLOCKS, PAGES, ROOT, Block, Page, blocks_to_run, named_commands
from workers.agents.registry import build_registry
from workers.cli.main import cli as group
from workers.hosts.from_settings import configured_hosts

RUN_HERE = ("sh", "toml")
NOT_RUN = ("text", "mermaid")  # what programs print, and pictures
CI = (ROOT / ".ci" / "run").read_text()
NAMED = {" ".join(words): (place, words) for place, words in named_commands() if words[0].endswith("runturn")}


@pytest.mark.parametrize("block", blocks_to_run("toml"), ids=str)
def test_configuration_is_valid(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "runturn.toml"
    path.write_text(block.text)
    monkeypatch.setenv("RUNTURN_CONFIG", str(path))
    settings = load_settings()
    assert build_registry(settings).names
    assert configured_hosts(settings, StateDir(tmp_path))


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_block_is_run_here_or_says_where(block: Block) -> None:
    assert block.language, "name its language"
    if block.language == "json":
        json.loads(block.text)
    assert block.tested_by or block.language in (*RUN_HERE, *NOT_RUN), (
        "put <!-- tested by: tests/…/test_x.py::test_y --> before it"
    )


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.tested_by], ids=str)
def test_what_is_said_to_run_a_block_exists(block: Block) -> None:
    for name in block.tested_by:
        if name == ".ci/run":
            assert all(" ".join(words) in CI for words in block.commands)
        else:
            assert exists(name), name


def exists(name: str) -> bool:
    """Whether there is such a test: `tests/…/test_x.py::test_y`."""
    path, _, function = name.partition("::")
    file = ROOT / path
    return file.is_file() and re.search(rf"^(async )?def {function}\(", file.read_text(), re.MULTILINE) is not None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_tests_that_are_named_exist(page: Page) -> None:
    for span in page.spans:
        if re.fullmatch(r"tests/[\w/]+\.py::\w+", span):
            assert exists(span), span


@pytest.mark.parametrize("name", NAMED)
def test_commands_that_are_named_exist_with_their_options(name: str) -> None:
    place, (_, *rest) = NAMED[name]
    command: click.Command | None = group
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        command = command.get_command(click.Context(command), rest.pop(0))
        assert command is not None, place
    assert command is not None
    known = {option for parameter in command.params for option in parameter.opts + parameter.secondary_opts}
    for word in rest:
        if re.fullmatch(r"--?[a-z][a-z-]*", word):
            assert word in known | {"--help", "--version"}, f"{place}: {word}"
