"""Every block of code in every document is run: here, or by the test that is named before it."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from ops.settings import load_settings
from ops.settings.state_dir import StateDir
from tests.docs.pages import BLOCKS, PAGES, ROOT, Block, Page
from tests.docs.sandbox import Sandbox, sandbox
from workers.agents.registry import build_registry
from workers.cli.main import cli as group
from workers.hosts.from_settings import configured_hosts

RUN_HERE = ("sh", "toml")
NOT_RUN = ("text", "mermaid")  # what programs print, and pictures
CI = (ROOT / ".ci" / "run").read_text()


def here(language: str) -> list[Block]:
    return [block for block in BLOCKS if block.language == language and not block.tested_by]


def _lines(block: Block) -> Iterator[list[str]]:
    for line in block.text.replace("\\\n", " ").splitlines():
        if words := shlex.split(line, comments=True):
            yield words


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with sandbox(tmp_path_factory.mktemp("docs")) as box:
        yield box


@pytest.mark.parametrize("block", here("sh"), ids=str)
def test_commands_run(box: Sandbox, block: Block) -> None:
    done = box.run(block)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("block", here("toml"), ids=str)
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
            assert all(" ".join(words) in CI for words in _lines(block))
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


def _commands() -> Iterator[tuple[str, list[str]]]:
    """All commands of runturn in blocks that are run elsewhere, and between backticks."""
    for block in BLOCKS:
        if block.language == "sh" and block.tested_by:
            yield from ((str(block), words) for words in _lines(block))
    for page in PAGES:
        for span in page.spans:
            if span.startswith(("runturn ", "make ")) and "'" not in span:
                yield page.name, span.split()


NAMED = {" ".join(words): (place, words) for place, words in _commands()}


@pytest.mark.parametrize("name", NAMED)
def test_commands_that_are_named_exist_with_their_options(name: str) -> None:
    place, (program, *words) = NAMED[name]
    if program == "make":
        _make(place, *words)
    elif program.endswith("runturn"):
        _runturn(place, *words)


def _make(place: str, *words: str) -> None:
    done = subprocess.run(["make", "-n", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{place}: {done.stderr}"


def _runturn(place: str, *words: str) -> None:
    command: click.Command | None = group
    rest = list(words)
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        command = command.get_command(click.Context(command), rest.pop(0))
        assert command is not None, place
    assert command is not None
    known = {option for parameter in command.params for option in parameter.opts + parameter.secondary_opts}
    for word in rest:
        if re.fullmatch(r"--?[a-z][a-z-]*", word):
            assert word in known | {"--help", "--version"}, f"{place}: {word}"
