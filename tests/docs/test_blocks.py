"""Every shell block in every document is run here, or by the test that is named before it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from tests.docs.pages import ROOT, Block, blocks_to_run, named_commands
from tests.docs.sandbox import Sandbox, sandbox

TARGETS = {" ".join(words): place for place, words in named_commands() if words[0] == "make"}


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with sandbox(tmp_path_factory.mktemp("docs")) as box:
        yield box


@pytest.mark.parametrize("block", blocks_to_run("sh"), ids=str)
def test_commands_run(box: Sandbox, block: Block) -> None:
    done = box.run(block)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("command", TARGETS)
def test_targets_that_are_named_exist(command: str) -> None:
    program, *words = command.split()
    done = subprocess.run([program, "-n", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{TARGETS[command]}: {done.stderr}"
